//! Answers of the commands, on a store that knows the names of waiters: tables for people, JSON for scripts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

mod doctor;
mod terminal;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use dlock_testkit::servers::shared;
use dlock_testkit::{Mode, Proxy};

fn dlock(url: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    command.env("DLOCK_URL", url).args(words);
    command
}

/// Ends with the test.
struct Running(Child);

impl Running {
    fn start(url: &str, key: &str) -> Self {
        let words = ["run", "--wait", "forever", key, "sleep", "600"];
        Self(dlock(url, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(url: &str, words: &[&str], is_so: impl Fn(&Output) -> bool) -> Output {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let output = dlock(url, words).output().unwrap();
        if is_so(&output) {
            return output;
        }
        assert!(Instant::now() < end, "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn show_names_the_waiters_and_ls_counts_them() {
    let url = shared().redis().unwrap();
    let key = format!("shown-{:x}", fastrand::u64(..));
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let holder = Running::start(&url, &key);
    until(&url, &["show", &key], |shown| shown.status.success());
    let waiters = [Running::start(&url, &key), Running::start(&url, &key)];
    let shown = until(&url, &["show", &key], |shown| text(shown).contains("waiters        2"));
    let mut pids = waiters.iter().map(|waiter| format!(":{} ", waiter.0.id()));
    assert!(
        pids.all(|pid| text(&shown).lines().any(|line| line.contains("waiter ") && line.contains(&pid))),
        "{shown:?}"
    );
    // A waiter of a late machine loses its place for a moment.
    let named = |shown: &Output| json(shown)[0]["first_waiters"].as_array().map(Vec::len);
    until(&url, &["show", "--json", &key], |shown| named(shown) == Some(2));
    let counts = |listed: &Output| text(listed).lines().nth(1).is_some_and(|line| line.trim_end().ends_with(" 2"));
    until(&url, &["ls", &key], counts);
    drop(holder);
}

#[test]
fn each_command_has_json_or_says_that_it_has_none() {
    let url = shared().redis().unwrap();
    let key = format!("json-{:x}", fastrand::u64(..));
    let holder = Running::start(&url, &key);
    until(&url, &["show", &key], |shown| shown.status.success());
    let wrong = ["break", &key, "--hold", "0123456789abcdef", "--why", "test", "--yes"];
    let answers: [(&[&str], i32, serde_json::Value); 3] = [
        (&["wait", "nobody-has-it"], 0, true.into()),
        (&["wait", &key, "--wait", "none"], 75, false.into()),
        (&wrong, 1, false.into()),
    ];
    for (words, code, expected) in answers {
        let answer = dlock(&url, words).arg("--json").output().unwrap();
        assert_eq!(answer.status.code(), Some(code), "{answer:?}");
        let told: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
        assert_eq!(
            [&told["free"], &told["broken"]].into_iter().find(|told| !told.is_null()),
            Some(&expected),
            "{told}"
        );
    }
    for words in [
        ["--json", "run", "a", "true"].as_slice(),
        &["--json", "watch"],
        &["--json", "completions", "bash"],
        &["--json", "man", "nowhere"],
    ] {
        let refused = dlock(&url, words).output().unwrap();
        assert!(refused.status.code() == Some(64) && refused.stdout.is_empty(), "{refused:?}");
    }
    let said = String::from_utf8(dlock(&url, &wrong).output().unwrap().stderr).unwrap();
    assert!(said.contains(&format!(":{}, sleep, for ", holder.0.id())) && said.contains("(--hold "), "{said}");
}

/// Ten thousand names would fill the terminal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_beyond_twenty_are_counted_and_not_listed() {
    let url = shared().redis().unwrap();
    let name = format!("led-{:x}", fastrand::u64(..));
    // As in so many processes: the candidates of one may stand behind each other.
    let election = async |at: u32| {
        let registry = dlock::Registry::new();
        registry.connect("store", &url).await.unwrap();
        registry.elect(dlock::Key::rendered(&name)).backend("store").candidate(format!("node-{at}"))
    };
    let leads = election(0).await.campaign().await.unwrap();
    let mut waiting = Vec::new();
    for at in 1..=21 {
        waiting.push(tokio::spawn(election(at).await.campaign()));
    }
    let counted = until(&url, &["leaders", "--json", &name], |told| json(told)[0]["waiting"] == 21);
    let told = json(&counted);
    assert_eq!(told[0]["waiters"].as_array().map(Vec::len), Some(20), "{told}");
    assert_eq!(told[0]["leader"], "node-0", "{told}");
    assert!(told[0]["host"].is_string() && told[0]["pid"].as_u64() == Some(std::process::id().into()), "{told}");
    let shown = json(&until(&url, &["show", "--json", &name], |shown| json(shown)[0]["waiters"] == 21));
    assert_eq!(shown[0]["first_waiters"].as_array().map(Vec::len), Some(20), "{shown}");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    leads.resign().await.unwrap();
}

/// The lock stays taken for a while, and nobody would know why.
#[test]
fn a_release_that_the_store_has_not_confirmed_is_told() {
    let (proxy, url) = Proxy::in_front_of(&shared().redis().unwrap()).unwrap();
    let key = format!("unreleased-{:x}", fastrand::u64(..));
    let mut command = dlock(&url, &["run", "--ttl", "1m", &key, "sh", "-c", "echo held; cat"]);
    let mut ran = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(ran.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    proxy.set(Mode::Refuse);
    drop(ran.stdin.take());
    let ended = ran.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(said.contains(&format!("has not confirmed the release of '{key}', which is free after 1m 2s")), "{said}");
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}
