//! Checks of a program's locks as a whole: sites that do not mix, the order of annotated functions, settings
//! from the environment of the process; and a body under the test kit.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock::backends::memory::Memory;
use dlock::testing::TestKit;
use dlock::{
    Error, ErrorKind, Event, Label, LossCause, Observer, OnLost, Outcome, Registry, Renew, Tuning, distributed_lock,
    is_locked,
};
use dlock_testkit::{Log, wait_until};
use futures::future::BoxFuture;
use tokio::sync::Notify;

#[distributed_lock(key = "shelf:<id>")]
async fn fill(id: u64) -> Result<u64, Error> {
    Ok(id)
}

/// The same key by another name of its placeholder.
#[distributed_lock(key = "shelf:<number>", mode = read)]
async fn look(number: u64) -> Result<u64, Error> {
    Ok(number)
}

#[distributed_lock(key = "gate", mode = permits(2))]
async fn two_at_the_gate() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "gate", mode = permits(3))]
async fn three_at_the_gate() -> Result<(), Error> {
    Ok(())
}

/// On a store of its own, where the key is another one.
#[distributed_lock(key = "gate", backend = "other")]
async fn alone_at_another_gate() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "config", mode = read)]
async fn load() -> Result<(), Error> {
    Ok(())
}

/// Mixes with it.
#[distributed_lock(key = "config", mode = write)]
async fn roll_out() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "left")]
async fn left(inner: bool) -> Result<(), Error> {
    if inner { Box::pin(right(false)).await } else { Ok(()) }
}

#[distributed_lock(key = "right", wait = "2s")]
async fn right(inner: bool) -> Result<(), Error> {
    if inner { Box::pin(left(false)).await } else { Ok(()) }
}

/// How a body ends that waits for ever.
#[distributed_lock(key = "job", ttl = "30s", wait = "none")]
async fn job(begun: Arc<Mutex<u32>>) -> Outcome<()> {
    *begun.lock().unwrap() += 1;
    std::future::pending().await
}

/// How a body ends that ends itself, sooner or later.
#[distributed_lock(key = "errand", ttl = "30s", wait = "none")]
async fn errand(begun: Arc<Mutex<u32>>, go: Arc<Notify>) -> Outcome<u32> {
    *begun.lock().unwrap() += 1;
    go.notified().await;
    7.into()
}

/// The same where the body is no part of the future that acquires.
#[distributed_lock(key = "errand", ttl = "30s", wait = "none", on_busy = call(nobody))]
async fn errand_or_nobody(begun: Arc<Mutex<u32>>, go: Arc<Notify>) -> Outcome<u32> {
    *begun.lock().unwrap() += 1;
    go.notified().await;
    7.into()
}

async fn nobody(_: Arc<Mutex<u32>>, _: Arc<Notify>) -> Outcome<u32> {
    0.into()
}

fn registry() -> Registry {
    let registry = Registry::new();
    registry.install("memory", Memory::new()).unwrap();
    registry.install("other", Memory::new()).unwrap();
    registry.set_default("memory").unwrap();
    registry
}

#[test]
fn two_sites_with_one_template_and_modes_that_do_not_mix_are_reported_with_both_places() {
    let found = registry().verify().unwrap_err();
    let names: Vec<_> = found.iter().map(|(site, error)| (site.name(), error.kind().clone())).collect();
    let kind = ErrorKind::ConfigInvalid { field: "mode".into() };
    assert_eq!(names, [("knowing::look", kind.clone()), ("knowing::three_at_the_gate", kind)]);
    let text = found.to_string();
    for part in ["knowing::fill (tests/knowing.rs:", "knowing::look (tests/knowing.rs:", "do not mix"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // The warning is right: the second mode fails at once while the first is held.
}

#[derive(Clone, Default)]
struct Cycles(Arc<Mutex<Vec<[String; 2]>>>);

impl Observer for Cycles {
    fn on_event(&self, label: &Label, event: &Event) {
        if let Event::OrderCycle { elsewhere } = event {
            self.0.lock().unwrap().push([label.place(), elsewhere.to_string()]);
        }
    }
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn opposite_lock_orders_of_annotated_functions_are_reported_once_with_both_places() {
    let kit = TestKit::in_real_time();
    let _in = kit.enter();
    let cycles = Cycles::default();
    kit.registry().observe(cycles.clone());
    for _ in 0..3 {
        left(true).await.unwrap();
        right(true).await.unwrap();
    }
    // Observers get events on a thread of their own.
    wait_until("an event", async || !cycles.0.lock().unwrap().is_empty()).await.unwrap();
    let told = cycles.0.lock().unwrap().clone();
    let [[here, elsewhere]] = &told[..] else { panic!("{told:?}") };
    assert!(here.starts_with("knowing::left (tests/knowing.rs:"), "{here}");
    assert!(elsewhere.starts_with("knowing::right (tests/knowing.rs:"), "{elsewhere}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_is_logged_by_the_operator_and_by_the_holder() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(move || writer.clone()).init();
    let registry = registry();
    let lock = || registry.lock(dlock::Key::text("broken:").value(&42)).name("shop::broken");
    let guard =
        lock().ttl(Duration::from_secs(30)).renew(Renew::Every(Duration::from_millis(100))).acquire().await.unwrap();
    let id = lock().holders().await.unwrap().holders[0].id.unwrap();
    assert!(lock().break_hold(id).by("alice").because("web-3 hangs").await.unwrap());
    assert!(!lock().break_hold(id).by("bob").because("too late").await.unwrap());
    assert!(guard.lost().await.is_lost());
    let holders = async || log.text().contains("an operator has broken this hold");
    wait_until("the holder's line", holders).await.unwrap();
    let text = log.text();
    for words in ["this process has broken a hold", "an operator has broken this hold"] {
        let line = text.lines().find(|line| line.contains(words)).unwrap();
        assert!(
            ["by=alice", "web-3 hangs", "broken:<42>", &id.to_string()].iter().all(|part| line.contains(part)),
            "{line}"
        );
    }
    assert!(!text.contains("bob"), "{text}");
}

#[tokio::test]
async fn a_timeout_in_an_annotated_function_says_what_its_caller_holds() {
    let kit = TestKit::in_real_time();
    let _in = kit.enter();
    let _other = kit.lock("right").acquire().await.unwrap();
    kit.registry().tune("knowing::right", |site| site.wait = Some(Duration::from_millis(50).into())).unwrap();
    let error = left(true).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::WaitTimeout);
    let held = dlock::LockKey::new("default", dlock::Key::text("left")).unwrap();
    assert!(error.to_string().contains(&format!("the caller itself holds {held}")), "{error}");
}

#[tokio::test]
async fn a_body_under_the_kit_is_dropped_when_its_lock_is_lost() {
    for by_outage in [false, true] {
        let kit = TestKit::new();
        let begun = Arc::new(Mutex::new(0));
        if !by_outage {
            kit.lost_after(Duration::from_secs(3));
        }
        let running = tokio::spawn(kit.scope(job(begun.clone())));
        while *begun.lock().unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(kit.lock("job").is_locked().await.unwrap());
        kit.outage(by_outage);
        kit.clock().advance(Duration::from_secs(if by_outage { 31 } else { 4 }));
        let ended = tokio::time::timeout(HANG, running).await.expect("the loss ends it").unwrap();
        let Outcome::Lost(None, error) = ended else { panic!("it was lost") };
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Deadline));
        assert_eq!(Arc::strong_count(&begun), 1, "what the body owned is gone");
    }
}

/// The results of both functions, each on its own kit, with this tuning, if this much time passes before they may end.
async fn errands(tuned: fn(&mut Tuning), lost_after: Option<Duration>, passes: Duration) -> [Outcome<u32>; 2] {
    let run = |call: fn(_, _) -> BoxFuture<'static, Outcome<u32>>| async move {
        let kit = TestKit::new();
        kit.lost_after(lost_after);
        for site in ["knowing::errand", "knowing::errand_or_nobody"] {
            kit.registry().tune(site, tuned).unwrap();
        }
        let (begun, go) = (Arc::new(Mutex::new(0)), Arc::new(Notify::new()));
        let running = tokio::spawn(kit.scope(call(begun.clone(), go.clone())));
        while *begun.lock().unwrap() == 0 && !running.is_finished() {
            tokio::task::yield_now().await;
        }
        kit.clock().advance(passes);
        // Time for calls that the clock ends.
        tokio::time::sleep(Duration::from_millis(50)).await;
        go.notify_one();
        tokio::time::timeout(HANG, running).await.expect("it ends").unwrap()
    };
    [run(|begun, go| Box::pin(errand(begun, go))).await, run(|begun, go| Box::pin(errand_or_nobody(begun, go))).await]
}

#[tokio::test]
async fn a_tuned_timeout_ends_the_body() {
    let passes = Duration::from_secs(6);
    for ended in errands(|_| {}, None, passes).await {
        assert!(matches!(ended, Outcome::Ran(7)), "no limit was set: {ended:?}");
    }
    for ended in errands(|site| site.timeout = Some(Duration::from_secs(5)), None, passes).await {
        let Outcome::BodyTimeout(error) = ended else { panic!("{ended:?}") };
        assert!(error.to_string().contains("its timeout of 5s"), "{error}");
    }
}

#[tokio::test]
async fn a_body_that_is_tuned_to_go_on_comes_to_its_end_after_a_loss() {
    let (lost_after, passes) = (Some(Duration::from_secs(3)), Duration::from_secs(4));
    for ended in errands(|_| {}, lost_after, passes).await {
        assert!(matches!(ended, Outcome::Lost(None, _)), "it is dropped: {ended:?}");
    }
    for ended in errands(|site| site.on_lost = Some(OnLost::Continue), lost_after, passes).await {
        assert!(matches!(ended, Outcome::Lost(Some(7), _)), "{ended:?}");
    }
}

#[tokio::test]
async fn a_busy_kit_lets_in_callers_that_wait_longer() {
    let kit = TestKit::new();
    kit.busy_for(Duration::from_secs(5));
    let waits = tokio::spawn(kit.scope(fill(1)));
    while !waits.is_finished() {
        tokio::task::yield_now().await;
        kit.clock().advance(Duration::from_millis(100));
    }
    assert_eq!(waits.await.unwrap().unwrap(), 1);
    kit.busy_for(Duration::from_secs(5));
    let _in = kit.enter();
    let busy = tokio::time::timeout(HANG, job(Arc::default())).await.expect("it does not wait");
    assert!(matches!(busy, Outcome::Busy(_)));
}

/// In real time; only a body that runs on for ever comes near it.
const HANG: Duration = Duration::from_secs(20);

const CHILD: &str = "DLOCK_KNOWING_TEST_CHILD";

/// The environment is the process's: this program once more, with one test and these variables.
fn with_environment(test: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1").envs(variables.iter().copied());
    let output = command.output().unwrap();
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Something only in the process that the next test starts.
#[tokio::test]
async fn child_that_prints_how_it_is_tuned() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    match dlock::connect_from_env().await {
        Ok(_) => println!("{}", dlock::explain()),
        Err(error) => println!("refused: {error}"),
    }
    assert!(!is_locked("job").await.unwrap_or_default());
}

#[test]
fn a_process_is_tuned_by_a_file_and_variables_override_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks");
    std::fs::write(&file, "# night shift\nknowing::job ttl=2m max_hold=3h\nknowing::load wait=forever\n").unwrap();
    let file = file.to_str().unwrap();
    let store = ("DLOCK_URL_MEMORY", "memory://");
    let tuned = with_environment(
        "child_that_prints_how_it_is_tuned",
        &[store, ("DLOCK_TUNE_FILE", file), ("DLOCK_TUNE", "knowing::job ttl=5m; knowing::fill attempts=7")],
    );
    let of = |site: &str, setting: &str| {
        let section = tuned.split("\nknowing::").find(|section| section.starts_with(site));
        let line = section.into_iter().flat_map(str::lines).find(|line| line.trim().starts_with(setting));
        line.and_then(|line| line.split_whitespace().nth(1))
            .unwrap_or_else(|| panic!("{site} {setting} in {tuned}"))
            .to_owned()
    };
    assert_eq!(
        [of("job ", "ttl"), of("job ", "max_hold"), of("load ", "wait"), of("fill ", "attempts")],
        ["5m", "3h", "forever", "7"]
    );
    for (variables, part) in [
        (
            [store, ("DLOCK_TUNE", "knowing::nobody ttl=1s")],
            "DLOCK_TUNE: line 1: there is no locked function with this name",
        ),
        (
            [store, ("DLOCK_TUNE", "knowing::job on_busy=skip")],
            "DLOCK_TUNE: line 1: knowing::job: on_busy: this is a part of the function's type",
        ),
        ([store, ("DLOCK_TUNE_FILE", "/nowhere/locks")], "/nowhere/locks cannot be read"),
    ] {
        let said = with_environment("child_that_prints_how_it_is_tuned", &variables);
        assert!(said.contains("refused: ") && said.contains(part), "{part} in {said}");
    }
}
