//! The program itself, on a file of SQLite: several processes, real signals, real kills.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

mod ends;
mod options;
mod store;
#[cfg(target_os = "linux")]
mod terminal;

use std::io::{Read, Write};
use std::process::Stdio;

use tempfile::TempDir;

use crate::store::{HOLD, Store, code, dlock, lives, text};

#[test]
fn a_command_runs_under_the_lock_and_gives_its_own_code() {
    let store = Store::new();
    let ran = store.run(&["run", "stock:<42>", "sh", "-c", "echo $DLOCK_KEY $DLOCK_TOKEN $DLOCK_RUN_PARENT; exit 7"]);
    assert_eq!(code(&ran), 7, "{}", text(&ran.stderr));
    let told = text(&ran.stdout);
    let token = told.trim().strip_prefix("stock:<42> ").unwrap();
    assert!(token.parse::<u64>().unwrap() > 0);
    // It was released.
    assert_eq!(code(&store.run(&["run", "--wait", "none", "stock:<42>", "true"])), 0);
    let permit = store.run(&["run", "--mode", "permits(3)", "pool", "sh", "-c", "echo $DLOCK_SLOT"]);
    assert_eq!(text(&permit.stdout), "0\n", "{}", text(&permit.stderr));
}

/// A token of the outer lock must not guard what is written under the inner one.
#[test]
fn a_command_gets_no_variable_of_a_lock_around_it() {
    let store = Store::new();
    let told = "echo $DLOCK_KEY, $DLOCK_SLOT, $DLOCK_TOKEN";
    let inner = format!("{told}; exec {} run inner sh -c '{told}'", env!("CARGO_BIN_EXE_dlock"));
    let ran = store.run(&["run", "--mode", "permits(3)", "outer", "sh", "-c", &inner]);
    let (told, said) = (text(&ran.stdout), text(&ran.stderr));
    let [outer, inner] = told.lines().collect::<Vec<_>>()[..] else { panic!("{told} {said}") };
    assert!(outer.starts_with("outer, 0, ") && inner.starts_with("inner, , "), "{told} {said}");
}

#[test]
fn a_busy_lock_has_a_code_of_its_own() {
    let store = Store::new();
    let mut holder = store.hold(&["--name", "backup"], "job", HOLD);
    let busy = store.run(&["run", "--wait", "none", "job", "echo", "never"]);
    assert_eq!((code(&busy), text(&busy.stdout)), (75, String::new()));
    let said = text(&busy.stderr);
    assert!(said.contains("backup") && said.contains("dlock show 'job'"), "{said}");
    let sensitive = text(&store.run(&["run", "--wait", "none", "--sensitive", "job", "echo", "never"]).stderr);
    assert!(sensitive.contains("sha256:") && !sensitive.contains("job"), "{sensitive}");
    let quiet = store.run(&["run", "--wait", "none", "--quiet", "--busy-code", "0", "job", "echo", "never"]);
    assert_eq!((code(&quiet), text(&quiet.stdout), text(&quiet.stderr)), (0, String::new(), String::new()));
    assert_eq!(code(&store.run(&["wait", "--wait", "10ms", "job"])), 75);
    let mut waiter = store.dlock(&["wait", "job"]).spawn().unwrap();
    assert_eq!(holder.end(), 0);
    assert!(waiter.wait().unwrap().success());
}

#[test]
fn one_start_in_a_period() {
    let store = Store::new();
    let start = || store.run(&["run", "--once-per", "366d", "--offset", "1d", "year", "echo", "ran"]);
    let first = start();
    assert_eq!((code(&first), text(&first.stdout)), (0, "ran\n".to_owned()), "{}", text(&first.stderr));
    assert_eq!(code(&start()), 75);
    // Nobody holds it now, and whoever is called because the task is overdue sees when it was done.
    let shown = store.run(&["show", "year"]);
    assert!(code(&shown) == 1 && text(&shown.stderr).contains("its last success: "), "{}", text(&shown.stderr));
    let other = store.run(&["show", "month"]);
    assert!(code(&other) == 1 && !text(&other.stderr).contains("success"), "{}", text(&other.stderr));
}

#[test]
fn a_lock_is_shown_listed_and_broken() {
    let store = Store::new();
    let mut holder =
        store.hold(&["--name", "nightly"], "stock:<42>", "sleep 1000 & echo $!; trap 'echo term' TERM; wait; wait");
    let grandchild = holder.first.clone();
    let shown = store.run(&["show", "stock:42"]);
    assert_eq!(code(&shown), 0);
    assert!(text(&shown.stderr).contains("stock:<42> looks like it"), "{}", text(&shown.stderr));
    let listed = store.run(&["ls", "stock:"]);
    let listed = text(&listed.stdout);
    assert!(listed.contains("stock:<42>") && listed.contains("nightly"), "{listed}");
    assert_eq!(store.run(&["ls", "--json", "none:"]).stdout, b"[]\n");
    let none = store.run(&["ls", "none:"]);
    assert!(text(&none.stderr).contains("nobody holds a lock that begins with none:"), "{}", text(&none.stderr));
    // A slip of the finger does not read as "it is free".
    for (typed, told) in [("stok:42", "'stock:<42>' is held"), ("orders", "other locks are held")] {
        let missed = store.run(&["show", typed]);
        assert_eq!((code(&missed), text(&missed.stderr).contains(told)), (1, true), "{}", text(&missed.stderr));
    }
    let told = store.run(&["show", "--json", "stock:<42>"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let in_store = told[0]["names_in_store"][0].as_str().unwrap();
    assert!(text(&shown.stdout).lines().any(|line| line.contains("in the store") && line.contains(in_store)), "{told}");
    let seen = store.holder_of("stock:<42>");
    assert_eq!(seen["function"].as_str(), Some("nightly"));
    assert!(seen["token"].as_u64().unwrap() > 0 && seen["lease_left_ms"].as_u64().unwrap() > 0, "{seen}");
    let host = seen["host"].as_str().unwrap();
    assert!(text(&shown.stdout).contains(&format!("{host}:{}", holder.process.id())), "{}", text(&shown.stdout));
    assert!(seen["since"].as_str().is_some_and(|since| since.starts_with("20")), "{seen}");
    // A key as somebody types it.
    assert_eq!(code(&store.run(&["wait", "--wait", "none", "stock:42"])), 75);
    assert_eq!(seen["pid"].as_u64(), Some(u64::from(holder.process.id())));
    let hold = seen["hold"].as_str().unwrap();
    let to_paste = format!("dlock break 'stock:<42>' --hold {hold} --why");
    assert!(text(&shown.stdout).contains(&to_paste), "{}", text(&shown.stdout));

    let order =
        |hold, more: &[&str]| store.run(&[&["break", "stock:42", "--hold", hold, "--why", "it hangs"], more].concat());
    let old = order("0123456789abcdef", &["--yes"]);
    assert_eq!(code(&old), 1);
    assert!(text(&old.stderr).contains(hold), "{}", text(&old.stderr));
    // Nobody can answer here, so the risk is told before somebody writes --yes.
    let unasked = order(hold, &[]);
    assert_eq!(code(&unasked), 64);
    assert!(text(&unasked.stderr).contains("nightly") && text(&unasked.stderr).contains("Two may work"));
    let no_reason = store.run(&["break", "stock:42", "--hold", hold, "--why", "", "--yes"]);
    assert_eq!(code(&no_reason), 64);
    assert!(lives(&grandchild));
    assert_eq!(code(&order(hold, &["--yes", "--by", "alice"])), 0);
    assert_eq!(holder.end(), 76);
    assert_eq!(holder.rest(), "term\n");
    let mut said = String::new();
    holder.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("alice") && said.contains("it hangs"), "{said}");
    assert!(!lives(&grandchild), "a process of the command has outlived the lock");
    assert_eq!(code(&store.run(&["show", "stock:<42>"])), 1);
}

#[test]
fn run_says_that_a_lock_with_marks_is_another_lock() {
    let store = Store::new();
    let _held = store.hold(&[], "stock:<42>", "echo held; read line");
    for (key, other) in [("stock:42", true), ("stock:43", false), ("stock:<43>", false)] {
        let is_told = || {
            let ran = store.run(&["run", key, "true"]);
            assert_eq!(code(&ran), 0, "{key}");
            text(&ran.stderr).contains("the lock \"stock:<42>\" is held")
        };
        // A store that does not list its locks soon says nothing.
        assert_eq!((0..if other { 10 } else { 1 }).any(|_| is_told()), other, "{key}");
    }
}

#[test]
fn each_way_to_fail_has_its_code() {
    let store = Store::new();
    for (words, expected) in [
        (&["run", "job", "/nowhere/at/all"][..], 127),
        (&["run", "job", "/"], 126),
        (&["run", "--ttl", "30", "job", "true"], 64),
        (&["run", "job"], 64),
        (&["fly"], 64),
        (&["break", "job", "--hold", "7", "--why", "x"], 64),
        (&["run", "--once-per", "1m", "--mode", "read", "job", "true"], 64),
        (&["--version"], 0),
    ] {
        let ended = store.run(words);
        assert_eq!(code(&ended), expected, "{words:?}: {}", text(&ended.stderr));
    }
    let closed = dlock(&["--url", "redis://127.0.0.1:1/", "run", "--retry", "false", "job", "true"]).output().unwrap();
    assert_eq!(code(&closed), 69, "{}", text(&closed.stderr));
    let settable =
        dlock(&["--url", "redis://127.0.0.1:1/", "run", "--outage-code", "3", "job", "true"]).output().unwrap();
    assert_eq!(code(&settable), 3, "{}", text(&settable.stderr));
    // The help alone is enough for somebody with a stuck lock.
    let help = store.run(&["--help"]);
    let steps = ["dlock ls", "dlock show KEY", "dlock break KEY --hold ID --why TEXT", "dlock doctor", "Exit codes:"];
    assert!(code(&help) == 0 && steps.iter().all(|step| text(&help.stdout).contains(step)), "{}", text(&help.stdout));
    let which = dlock(&["ls"]).output().unwrap();
    assert!(code(&which) == 64 && text(&which.stderr).contains("DLOCK_URL"), "{}", text(&which.stderr));
}

#[test]
fn a_password_is_refused_on_the_command_line_and_never_shown() {
    let url = "redis://:hunter2@127.0.0.1:1/";
    let refused = dlock(&["--url", url, "ls"]).output().unwrap();
    assert_eq!(code(&refused), 64);
    let from_file = {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{url}").unwrap();
        dlock(&["--url-file", file.path().to_str().unwrap(), "ls"]).output().unwrap()
    };
    assert_eq!(code(&from_file), 69, "{}", text(&from_file.stderr));
    let from_variable = dlock(&["-v", "ls"]).env("DLOCK_URL", url).output().unwrap();
    for output in [refused, from_file, from_variable] {
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_store_of_the_services_variables_is_taken() {
    let folder = TempDir::new().unwrap();
    let url = |name| format!("sqlite://{}/{name}.db", folder.path().display());
    let two = |words: &[&str]| {
        let mut command = dlock(words);
        command.env("DLOCK_URL_ONE", url("one")).env("DLOCK_URL_TWO", url("two")).output().unwrap()
    };
    let which = two(&["ls"]);
    assert!(code(&which) == 64 && text(&which.stderr).contains("one, two"), "{}", text(&which.stderr));
    assert_eq!(code(&two(&["ls", "--backend", "two"])), 0);
    assert_eq!(code(&two(&["ls", "--backend", "three"])), 64);
}

#[test]
fn a_doctor_tells_what_a_store_promises() {
    let store = Store::new();
    let told = store.run(&["doctor", "--rounds", "3", "--json"]);
    let report: serde_json::Value =
        serde_json::from_slice(&told.stdout).unwrap_or_else(|_| panic!("{}", text(&told.stderr)));
    assert_eq!(report["kind"].as_str(), Some("sqlite"));
    assert!(report["cycle_p99_ms"].as_f64().unwrap() > 0.0);
    // The file is read by the clock of this host.
    assert_eq!(report["clock_difference_ms"].as_i64(), Some(0));
    let trials = report["trials"].as_object().unwrap();
    assert!(trials.len() >= 8 && trials.values().all(|outcome| outcome == "yes"), "{report}");
    let told = store.run(&["doctor", "--rounds", "1"]);
    assert!(text(&told.stdout).contains("NO failover"), "{}", text(&told.stdout));
    // It leaves no lock behind.
    assert_eq!(store.run(&["ls", "--json"]).stdout, b"[]\n");
}

#[test]
fn a_leader_is_named() {
    let store = Store::new();
    assert_eq!(code(&store.run(&["leaders", "indexer"])), 1);
    let _leader = store.hold(&["--name", "node-1"], "indexer", HOLD);
    let told = store.run(&["leaders", "indexer"]);
    assert!(code(&told) == 0 && text(&told.stdout).contains("node-1"), "{}", text(&told.stdout));
}

#[test]
fn without_a_name_all_elections_that_have_a_leader_are_shown() {
    let store = Store::new();
    assert_eq!(code(&store.run(&["leaders"])), 1);
    let _no_election = store.hold(&[], "job", HOLD);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let registry = dlock::Registry::new();
    runtime.block_on(registry.connect("store", &store.url())).unwrap();
    let leadership = runtime.block_on(registry.elect("indexer").candidate("node-1").campaign()).unwrap();
    let told = store.run(&["--json", "leaders"]);
    let all: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(all[0]["term"].as_u64(), Some(leadership.term().get()), "{all}");
    let seen = |field: &str| all.as_array().unwrap().iter().map(|one| one[field].clone()).collect::<Vec<_>>();
    assert_eq!((code(&told), seen("election"), seen("leader")), (0, vec!["indexer".into()], vec!["node-1".into()]));
    leadership.resign_blocking().unwrap();
}

#[test]
fn sites_are_told_from_what_a_program_has_printed() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, r#"[{{"name":"shop::deduct","keys":["stock:<id>"],"backend":"main","place":"src/a.rs:7","settings":{{"ttl":"30s"}}}}]"#).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let told = dlock(&["sites", &path]).output().unwrap();
    assert!(
        text(&told.stdout).contains("stock:<id>") && text(&told.stdout).contains("ttl=30s"),
        "{}",
        text(&told.stdout)
    );
    let told = dlock(&["sites", "--json", &path]).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told[0]["keys"][0], "stock:<id>", "{told}");
    write!(file, "x").unwrap();
    assert_eq!(code(&dlock(&["sites", &path]).output().unwrap()), 64);
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let store = Store::new();
    let _holder = store.hold(&[], "job", HOLD);
    let mut listing = store.dlock(&["ls"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(listing.stdout.take());
    let ended = listing.wait_with_output().unwrap();
    assert_eq!((code(&ended), text(&ended.stderr)), (0, String::new()));
}

/// A mistake in the path must not look like a store without locks.
#[test]
fn only_a_command_that_locks_makes_the_file_of_a_store() {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}/lock.db", folder.path().display());
    let at = |words: &[&str]| dlock(words).env("DLOCK_URL", &url).output().unwrap();
    for words in [&["ls"][..], &["show", "a"], &["wait", "a"], &["leaders"], &["doctor"]] {
        let refused = at(words);
        let said = text(&refused.stderr);
        assert!(
            code(&refused) == 64 && said.contains("lock.db") && said.contains("does not exist"),
            "{words:?}: {said}"
        );
        assert!(folder.path().read_dir().unwrap().next().is_none(), "{words:?}");
    }
    assert_eq!(code(&at(&["run", "a", "true"])), 0);
    assert_eq!((code(&at(&["ls"])), code(&at(&["doctor", "--rounds", "1"]))), (0, 0));
}

#[test]
fn completions_and_man_pages_are_written() {
    assert!(text(&dlock(&["completions", "bash"]).output().unwrap().stdout).contains("_dlock"));
    let folder = TempDir::new().unwrap();
    // It makes the folder.
    let pages = folder.path().join("pages");
    assert_eq!(code(&dlock(&["man", pages.to_str().unwrap()]).output().unwrap()), 0);
    assert!(pages.join("dlock-run.1").exists());
}
