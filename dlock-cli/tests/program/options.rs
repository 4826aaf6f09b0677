//! Options of `dlock run`: each one works, and is off by default.

use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::store::{HOLD, Holder, Store, code, text};

#[test]
fn a_minimal_hold_keeps_the_key() {
    let store = Store::new();
    assert_eq!(code(&store.run(&["run", "--ttl", "2h", "--min-hold", "1h", "kept", "true"])), 0);
    assert_eq!(code(&store.run(&["run", "--wait", "none", "kept", "true"])), 75);
    for _ in 0..2 {
        assert_eq!(code(&store.run(&["run", "--wait", "none", "not kept", "true"])), 0);
    }
}

#[test]
fn a_longest_hold_ends_the_command_with_a_code_that_can_be_set() {
    let store = Store::new();
    let ended = |words: &[&str]| {
        store.run(
            &[&["run", "--ttl", "5s", "--max-hold", "5s", "--renew", "500ms"], words, &["job", "sleep", "1000"]]
                .concat(),
        )
    };
    let lost = ended(&[]);
    assert!(code(&lost) == 76 && text(&lost.stderr).contains("max_hold"), "{}", text(&lost.stderr));
    assert_eq!(code(&ended(&["--lost-code", "9"])), 9);
    // Without the option, a command may take longer than the ttl: see the test of a renewed lock.
}

#[test]
fn an_order_that_the_store_does_not_keep_is_refused() {
    let store = Store::new();
    let refused = store.run(&["run", "--fair", "job", "true"]);
    assert!(code(&refused) != 0 && text(&refused.stderr).contains("fair"), "{}", text(&refused.stderr));
    assert_eq!(code(&store.run(&["run", "job", "true"])), 0);
}

#[test]
fn a_run_whose_process_was_killed_is_repeated_if_the_option_says_so() {
    for (rerun, again) in [(&["--rerun", "on-crash"][..], 0), (&[], 75)] {
        let store = Store::new();
        let start = |ttl, script| {
            let words =
                [&["run", "--ttl", ttl, "--wait", "1m", "--once-per", "366d"], rerun, &["year", "sh", "-c", script]];
            store.dlock(&words.concat())
        };
        let process = start("1s", "echo runs; sleep 1000").stdout(Stdio::piped()).spawn().unwrap();
        let mut killed = Holder::of(process);
        killed.line();
        killed.process.kill().unwrap();
        assert_eq!(code(&start("1m", "true").output().unwrap()), again, "{rerun:?}");
    }
}

/// As cron starts it on several hosts.
#[test]
fn of_many_starts_at_once_one_runs_in_a_period() {
    let store = Store::new();
    let words = ["run", "--once-per", "366d", "--wait", "1m", "year", "echo", "ran"];
    let started: Vec<_> = (0..8).map(|_| store.dlock(&words).stdout(Stdio::piped()).spawn().unwrap()).collect();
    let ended: Vec<_> = started.into_iter().map(|one| one.wait_with_output().unwrap()).collect();
    let mut codes: Vec<_> = ended.iter().map(code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 75, 75, 75, 75, 75, 75, 75]);
    assert_eq!(ended.iter().map(|one| text(&one.stdout)).collect::<String>(), "ran\n");
}

#[test]
fn an_offset_moves_the_periods() {
    let store = Store::new();
    let period = 366 * 86_400;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let start = |boundary: u64| {
        let offset = format!("{}s", boundary % period);
        code(&store.run(&["run", "--once-per", "366d", "--offset", &offset, "year", "true"]))
    };
    // A start belongs to the nearest boundary: one of an hour ago, and then one that comes in an hour.
    let (before, after) = (now - 3600, now + 3600);
    assert_eq!([before, before, after, after, before].map(start), [0, 75, 0, 75, 75]);
}

#[test]
fn attempts_and_pauses_have_bounds() {
    let store = Store::new();
    let mut holder = store.hold_for("1m", &[], "job", HOLD);
    // It would wait for ever.
    let busy = store.run(&["run", "--wait", "forever", "--attempts", "1", "--backoff", "10ms..20ms", "job", "true"]);
    assert_eq!(code(&busy), 75, "{}", text(&busy.stderr));
    assert_eq!(holder.end(), 0);
    for wrong in [["--attempts", "0"], ["--backoff", "2s..1s"]] {
        let refused = store.run(&[&["run"], &wrong[..], &["job", "true"]].concat());
        assert!(code(&refused) == 64 && text(&refused.stderr).contains(wrong[0]), "{}", text(&refused.stderr));
    }
}

#[test]
fn a_list_without_locks_names_the_one_that_was_meant() {
    let store = Store::new();
    let mut holder = store.hold_for("1m", &[], "stock:<42>", HOLD);
    let said = |prefix| text(&store.run(&["ls", prefix]).stderr);
    // The hint is left out if the store does not answer soon.
    let hinted = (0..10).any(|_| said("stock:42").contains("stock:<42> looks like it"));
    assert!(hinted, "{}", said("stock:42"));
    assert!(!said("stock:7").contains("looks like"), "{}", said("stock:7"));
    holder.end();
}

#[test]
fn the_log_is_shown_if_it_is_asked_for() {
    let store = Store::new();
    let said = |words: &[&str], level: Option<&str>| {
        let mut command = store.dlock(&[words, &["run", "job", "true"]].concat());
        command.env_remove("RUST_LOG").envs(level.map(|level| ("RUST_LOG", level)));
        text(&command.output().unwrap().stderr)
    };
    assert_eq!(said(&[], Some("debug")), "");
    assert!(said(&["-v"], None).contains("acquired"), "{}", said(&["-v"], None));
    assert!(!said(&["-v"], Some("dlock=warn")).contains("acquired"));
}

/// Of several holders the question names the one that the id means.
#[test]
fn a_break_names_the_holder_of_the_id() {
    let store = Store::new();
    let names = ["first", "second"];
    let mut holders = names.map(|name| store.hold_for("1m", &["--mode", "permits(2)", "--name", name], "pool", HOLD));
    let shown: serde_json::Value = serde_json::from_slice(&store.run(&["--json", "show", "pool"]).stdout).unwrap();
    let seen = shown[0]["holders"].as_array().unwrap();
    assert_eq!(seen.len(), 2, "{shown}");
    for holder in seen {
        let (id, function) = (holder["hold"].as_str().unwrap(), holder["function"].as_str().unwrap());
        let asked = text(&store.run(&["break", "pool", "--hold", id, "--why", "a test"]).stderr);
        let other = names.into_iter().find(|name| *name != function).unwrap();
        assert!(asked.contains(function) && !asked.contains(other), "{asked}");
    }
    for holder in &mut holders {
        holder.end();
    }
}

#[test]
fn a_key_cannot_steer_the_terminal() {
    let store = Store::new();
    let key = "jobs:\u{1b}[31mb";
    let mut holder = store.hold_for("1m", &[], key, HOLD);
    let shown = store.run(&["show", key]);
    assert!(code(&shown) == 0 && text(&shown.stdout).contains("[31mb") && !text(&shown.stdout).contains('\u{1b}'));
    let free = store.run(&["show", "jobs:\u{1b}[31mc"]);
    assert!(text(&free.stderr).contains("[31mc") && !text(&free.stderr).contains('\u{1b}'), "{free:?}");
    holder.end();
}
