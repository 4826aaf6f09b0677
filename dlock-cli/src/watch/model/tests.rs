//! Tests of the state of the screen, and what the tests of the drawing need of it.

use super::*;

pub(in crate::watch) fn row(key: &str, waiters: u64, since_ms: u64) -> Row {
    Row {
        lock: LockKey::from_stored(&format!("dl1:default:{key}")).unwrap(),
        key: key.to_owned(),
        place: "node-3:17".into(),
        function: "shop::sell".into(),
        since_ms: Some(since_ms),
        lease_left: Some(Duration::from_secs(20)),
        full_lease: Duration::from_secs(30),
        waiters: Some(waiters),
        token: Some(7),
        trace: None,
        names: vec![format!("dl1:default:{key}")],
        hold: Some("0123456789abcdef".parse().unwrap()),
    }
}

pub(in crate::watch) fn model() -> Model {
    let mut model = Model::new(String::new());
    model.set(vec![row("a", 1, 3), row("b", 5, 2), row("c", 0, 1)]);
    model
}

impl Model {
    pub(in crate::watch) fn press_all(&mut self, keys: &str) {
        press(self, keys);
    }
}

fn press(model: &mut Model, keys: &str) -> Option<Wish> {
    let press = |model: &mut Model, c| {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        model.press(KeyEvent::new(code, KeyModifiers::NONE))
    };
    keys.chars().filter_map(|c| press(model, c)).last()
}

fn keys(model: &Model) -> String {
    model.rows().iter().map(|row| row.key.as_str()).collect()
}

#[test]
fn rows_are_ordered_and_filtered() {
    let mut model = model();
    assert_eq!(keys(&model), "bac");
    press(&mut model, "s");
    assert_eq!(keys(&model), "cba");
    press(&mut model, "s");
    assert_eq!(keys(&model), "abc");
    press(&mut model, "/B\n");
    assert_eq!(keys(&model), "b");
    press(&mut model, "/\u{1b}");
    assert_eq!(keys(&model), "abc");
}

#[test]
fn a_hold_stays_selected_when_others_come_and_go() {
    let mut model = model();
    press(&mut model, "j");
    assert_eq!(model.selected().unwrap().key, "a");
    model.set(vec![row("x", 9, 1), row("y", 9, 1), row("a", 1, 3)]);
    assert_eq!(model.selected().unwrap().key, "a");
    press(&mut model, "\n");
    model.set(Vec::new());
    assert!(model.selected().is_none() && model.focus == Focus::Table);
}

#[test]
fn a_hold_that_ends_without_a_release_is_a_loss() {
    let mut model = model();
    let ended = |key| Row { lease_left: Some(Duration::ZERO), ..row(key, 0, 1) };
    model.set(vec![
        ended("dead"),
        row("released", 0, 1),
        Row { hold: Some("00000000000000aa".parse().unwrap()), ..row("broken", 0, 1) },
    ]);
    let broken = model.rows().iter().find(|row| row.key == "broken").unwrap().hold.unwrap();
    model.expect_end(broken);
    model.set(Vec::new());
    let told: Vec<_> = model.losses.iter().map(|text| text.split(' ').nth(1).unwrap()).collect();
    assert!(told.len() == 2 && told.contains(&"dead") && told.contains(&"broken"), "{told:?}");
    model.is_whole = false;
    model.set(vec![ended("cut")]);
    model.set(Vec::new());
    assert_eq!(model.losses.len(), 2, "a list that is cut says nothing about the others");
}

#[test]
fn a_hold_that_may_have_been_renewed_is_no_loss() {
    let brief = |full_lease| Row { lease_left: Some(Duration::from_millis(1)), full_lease, ..row("brief", 0, 1) };
    // The store was away for longer than the lease.
    let mut model = model();
    model.set(vec![brief(Duration::from_secs(30))]);
    model.fail("no answer".into());
    std::thread::sleep(Duration::from_millis(5));
    model.set(Vec::new());
    assert!(model.losses.is_empty(), "{:?}", model.losses);
    // The lease is shorter than the time between two looks.
    model.set(vec![brief(Duration::from_millis(1))]);
    std::thread::sleep(Duration::from_millis(5));
    model.set(Vec::new());
    assert!(model.losses.is_empty(), "{:?}", model.losses);
}

#[test]
fn the_bar_of_a_lock_is_as_long_as_its_longest_lease() {
    let mut model = model();
    let short = |left| Row {
        lease_left: Some(Duration::from_secs(left)),
        full_lease: Duration::from_secs(left),
        ..row("s", 0, 1)
    };
    model.set(vec![short(3)]);
    model.set(vec![short(2)]);
    assert_eq!(model.rows()[0].full_lease, Duration::from_secs(3));
}

#[test]
fn a_break_is_asked_back_and_names_the_hold() {
    let mut model = model();
    // Without a reason nothing is broken, and a reason that was given up is forgotten.
    assert_eq!(press(&mut model, "b\n  \nother\u{1b}"), None);
    assert_eq!(model.focus, Focus::Table);
    let Some(Wish::Break { key, hold, why }) = press(&mut model, "bit hangs\n") else { panic!("it is a break") };
    assert_eq!(why, "it hangs");
    assert_eq!((key.as_str(), hold.to_string().as_str()), ("dl1:default:b", "0123456789abcdef"));
    // The hold ends while the reason is typed, and another one has its line.
    press(&mut model, "bit ha");
    model.set(vec![row("a", 1, 3), row("c", 0, 1)]);
    assert_eq!(press(&mut model, "ngs\nq\n"), None);
    assert_eq!((&model.focus, model.row_to_break().is_none()), (&Focus::Confirm, true));
    press(&mut model, "\u{1b}");
    assert_eq!(press(&mut model, "q"), Some(Wish::Quit));
}

#[test]
fn a_store_that_is_away_leaves_the_last_picture_until_it_is_back() {
    let mut model = model();
    model.fail("it does not answer".into());
    assert!(model.is_stale && keys(&model) == "bac");
    model.set(vec![row("a", 1, 3)]);
    assert!(!model.is_stale && model.message.is_none());
}
