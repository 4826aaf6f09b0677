//! Options of `dlock run`: each one works, and is off by default.

use std::process::Stdio;

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
        store.run(&[&["run", "--ttl", "1s", "--max-hold", "1s"], words, &["job", "sleep", "1000"]].concat())
    };
    let lost = ended(&[]);
    assert!(code(&lost) == 76 && text(&lost.stderr).contains("max_hold"), "{}", text(&lost.stderr));
    assert_eq!(code(&ended(&["--lost-code", "9"])), 9);
    assert_eq!(code(&store.run(&["run", "--ttl", "1s", "job", "sleep", "1.5"])), 0);
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
        let start = |script: &str| {
            let words =
                [&["run", "--ttl", "1s", "--wait", "1m", "--once-per", "366d"], rerun, &["year", "sh", "-c", script]];
            store.dlock(&words.concat())
        };
        let process = start("echo runs; sleep 1000").stdout(Stdio::piped()).spawn().unwrap();
        let mut killed = Holder::of(process);
        killed.line();
        killed.process.kill().unwrap();
        assert_eq!(code(&start("true").output().unwrap()), again, "{rerun:?}");
    }
}

#[test]
fn attempts_and_pauses_have_bounds() {
    let store = Store::new();
    let mut holder = store.hold(&[], "job", HOLD);
    // It would wait for ever.
    let busy = store.run(&["run", "--wait", "forever", "--attempts", "1", "--backoff", "10ms..20ms", "job", "true"]);
    assert_eq!(code(&busy), 75, "{}", text(&busy.stderr));
    assert_eq!(holder.end(), 0);
    for wrong in [["--attempts", "0"], ["--backoff", "2s..1s"]] {
        let refused = store.run(&[&["run"], &wrong[..], &["job", "true"]].concat());
        assert!(code(&refused) == 64 && text(&refused.stderr).contains(wrong[0]), "{}", text(&refused.stderr));
    }
}
