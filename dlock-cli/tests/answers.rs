//! Answers of the commands, on a store that knows the names of waiters: tables for people, JSON for scripts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlock_testkit::servers::shared;
use dlock_testkit::{Mode, Proxy, block_until};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions};

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
    let json = dlock(&url, &["show", "--json", &key]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json[0]["first_waiters"].as_array().map(Vec::len), Some(2), "{json}");
    let listed = dlock(&url, &["ls", &key]).output().unwrap();
    assert!(text(&listed).lines().nth(1).unwrap().trim_end().ends_with(" 2"), "{listed:?}");
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
    for words in [["--json", "run", "a", "true"].as_slice(), &["--json", "watch"]] {
        let refused = dlock(&url, words).output().unwrap();
        assert!(refused.status.code() == Some(64) && refused.stdout.is_empty(), "{refused:?}");
    }
    let said = String::from_utf8(dlock(&url, &wrong).output().unwrap().stderr).unwrap();
    assert!(said.contains(&format!(":{}, sleep, for ", holder.0.id())) && said.contains("(--hold "), "{said}");
}

/// One right after the other is told, not the first that lacks.
#[test]
fn a_doctor_says_what_the_account_may_not_do() {
    let url = shared().redis().unwrap();
    let server = url.strip_prefix("redis://").unwrap();
    let user = format!("doctor-{:x}", fastrand::u64(..));
    let asked = |words: &[&str]| {
        let mut client = redis::Client::open(&*url).unwrap().get_connection().unwrap();
        redis::cmd("ACL").arg(words).exec(&mut client).unwrap();
    };
    asked(&["SETUSER", &user, "on", ">pw", "~*", "&*", "+@all", "-scan"]);
    let restricted = format!("redis://{user}:pw@{server}");
    let (json, unable) = unable(&restricted);
    asked(&["DELUSER", &user]);
    assert!(matches!(&unable[..], [(what, why)] if what == "list locks" && why.contains("`scan`")), "{json}");
    assert!(json["cycle_p50_ms"].is_number());
    assert!(!json.to_string().contains("pw"));
}

#[tokio::test]
async fn a_doctor_tells_the_right_that_an_account_of_a_database_lacks() {
    let name = format!("doctor_{:x}", fastrand::u32(..));
    // PostgreSQL: the tables are in a schema of the test.
    let url = shared().postgres().unwrap();
    let mut root: PgConnection = url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {name}"))).execute(&mut root).await.unwrap();
    assert!(dlock(&format!("{url}?schema={name}"), &["ls"]).status().unwrap().success());
    let rights = format!(
        "CREATE ROLE {name} LOGIN PASSWORD 'pw'; GRANT USAGE ON SCHEMA {name} TO {name}; \
         GRANT SELECT, INSERT, UPDATE ON {name}.dlock_locks, {name}.dlock_meta TO {name}; \
         GRANT SELECT ON {name}.dlock_breaks TO {name}"
    );
    sqlx::raw_sql(AssertSqlSafe(rights)).execute(&mut root).await.unwrap();
    let (_, server) = url.split_once('@').unwrap();
    let said = refused(&format!("postgres://{name}:pw@{server}?schema={name}"));
    assert!(said.contains("lacks a right on dlock's tables") && said.contains("dlock_breaks"), "{said}");
    // MariaDB: they are in a database of the test.
    let url = shared().mariadb().unwrap();
    let mut root: MySqlConnection =
        url.replace("mariadb:", "mysql:").parse::<MySqlConnectOptions>().unwrap().connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut root).await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    assert!(dlock(&format!("{server}/{name}"), &["ls"]).status().unwrap().success());
    let rights = format!(
        "CREATE USER {name} IDENTIFIED BY 'pw'; GRANT SELECT, INSERT, UPDATE ON {name}.dlock_locks TO {name}; \
         GRANT SELECT, INSERT, UPDATE ON {name}.dlock_meta TO {name}; GRANT SELECT ON {name}.dlock_breaks TO {name}"
    );
    sqlx::raw_sql(AssertSqlSafe(rights)).execute(&mut root).await.unwrap();
    let (_, host) = server.split_once('@').unwrap();
    let said = refused(&format!("mariadb://{name}:pw@{host}/{name}"));
    assert!(said.contains("lacks a right on dlock's table: INSERT"), "{said}");
}

#[tokio::test]
async fn a_doctor_promises_nothing_of_a_store_that_it_could_not_ask() {
    let name = format!("doctor_{:x}", fastrand::u32(..));
    let url = shared().postgres().unwrap();
    let mut root: PgConnection = url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {name}"))).execute(&mut root).await.unwrap();
    let doctor = |url: &str| {
        // Other tests of this database have tables of the usual namespace.
        let report = dlock(url, &["doctor", "--rounds", "1", "--namespace", &name]).output().unwrap();
        (report.status.code(), String::from_utf8(report.stdout).unwrap())
    };
    let url = format!("{url}?schema={name}");
    let (code, said) = doctor(&url);
    assert!(code == Some(0) && said.contains("no setting here weakens a promise"), "{said}");
    // The namespace is locked in another way, so no lock is taken here.
    let (code, said) = doctor(&format!("{url}&way=named"));
    assert!(code == Some(70) && said.contains("NO") && !said.contains("no setting here"), "{said}");
}

#[test]
fn a_doctor_promises_no_failover_of_a_single_member() {
    let stores = [(shared().zookeeper().unwrap(), "ZooKeeper 3."), (shared().consul().unwrap(), "Consul 1.")];
    for (url, version) in stores {
        let report = dlock(&url, &["doctor", "--rounds", "1"]).output().unwrap();
        let said = String::from_utf8(report.stdout).unwrap();
        assert!(said.contains(version) && said.contains("NO failover: it has 1 of at least 3 members"), "{said}");
    }
}

/// A picture that waits for a store must not keep the keys waiting.
#[test]
fn a_watch_of_a_silent_store_obeys_its_keys() {
    let (proxy, url) = Proxy::in_front_of(&shared().redis().unwrap()).unwrap();
    // On a busy machine the key may come after the store was given up.
    let ends_unanswered = |_| {
        proxy.set(Mode::Pass);
        let (mut keys, screen, mut watch) = on_a_terminal(&url, |_| ());
        block_until("a picture", || screen.lock().unwrap().contains("HOLDER")).unwrap();
        let asked = proxy.swallowing();
        proxy.set(Mode::BLACKHOLE);
        block_until("a look without an answer", || proxy.swallowing() > asked).unwrap();
        keys.write_all(b"q").unwrap();
        assert!(watch.0.wait().unwrap().success());
        block_until("the end of the screen", || Arc::strong_count(&screen) == 1).unwrap();
        !screen.lock().unwrap().contains("outage")
    };
    assert!((0..5).any(ends_unanswered), "the key was heard only when the store was given up");
}

#[test]
fn a_watch_goes_on_when_its_store_is_back() {
    let (proxy, url) = Proxy::in_front_of(&shared().redis().unwrap()).unwrap();
    let (_keys, screen, _watch) = on_a_terminal(&url, |_| ());
    let shows = |text: &str| screen.lock().unwrap().contains(text);
    block_until("a picture", || shows("HOLDER")).unwrap();
    proxy.set(Mode::BLACKHOLE);
    block_until("the error", || shows("outage")).unwrap();
    let key = format!("back{:x}", fastrand::u32(..));
    let _holder = Running::start(&shared().redis().unwrap(), &key);
    assert!(!shows(&key));
    proxy.set(Mode::Pass);
    block_until("the lock that was taken meanwhile", || shows(&key)).unwrap();
}

#[test]
fn a_watch_has_colours_unless_no_color_is_set() {
    let url = shared().redis().unwrap();
    let key = format!("bar{:x}", fastrand::u32(..));
    let _holder = Running::start(&url, &key);
    for (value, has_colours) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let (_keys, screen, _watch) = on_a_terminal(&url, |command| {
            command.env_remove("NO_COLOR").envs(value.map(|value| ("NO_COLOR", value)));
        });
        block_until("the bar of the lease", || screen.lock().unwrap().contains('█')).unwrap();
        let screen = screen.lock().unwrap();
        assert_eq!(screen.contains("\u{1b}[38;5;"), has_colours, "{value:?}: {screen:?}");
        assert!(!screen.contains("\u{1b}[;m"), "{value:?}: {screen:?}");
    }
}

/// `dlock watch` on a terminal of 80 columns: its keyboard, and the bytes on its screen.
fn on_a_terminal(url: &str, change: impl Fn(&mut Command)) -> (File, Arc<Mutex<String>>, Running) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
    let terminal = || OpenOptions::new().read(true).write(true).open(&name).unwrap();
    assert!(Command::new("stty").args(["rows", "24", "cols", "80"]).stdin(terminal()).status().unwrap().success());
    let mut command = dlock(url, &["watch"]);
    change(&mut command);
    let watch = command.stdin(terminal()).stdout(terminal()).stderr(Stdio::null()).spawn().unwrap();
    let (keyboard, screen) = (File::from(keyboard), Arc::new(Mutex::new(String::new())));
    let (mut output, seen) = (keyboard.try_clone().unwrap(), screen.clone());
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    (keyboard, screen, Running(watch))
}

/// The words of a doctor to whom the store is not opened: a database is asked for all rights at once.
fn refused(url: &str) -> String {
    let report = dlock(url, &["doctor", "--rounds", "1"]).output().unwrap();
    let said = String::from_utf8(report.stderr).unwrap();
    assert!(report.status.code() == Some(77) && !said.contains("pw"), "{said}");
    said
}

/// The report of a doctor whose account lacks a right, and what the account may not do, with the reason.
fn unable(url: &str) -> (serde_json::Value, Vec<(String, String)>) {
    let report = dlock(url, &["doctor", "--rounds", "1", "--json"]).output().unwrap();
    assert_eq!(report.status.code(), Some(77), "{report:?}");
    let json: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let trials = json["trials"].as_object().unwrap().iter().filter(|(_, outcome)| *outcome != "yes");
    let unable = trials.map(|(what, why)| (what.clone(), why.to_string())).collect();
    (json, unable)
}
