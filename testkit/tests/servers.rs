//! Every server kind against the promises of [`Instance`].

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::servers::{Etcd, Instance, MariaDb, MySql, Redis};

/// The commands of one kind of server: to write a value, to read it back, and the answer if it was kept.
struct Words {
    write: &'static [&'static str],
    read: &'static str,
    kept: &'static str,
}

const SQL: Words = Words {
    write: &["CREATE TABLE test.t (id INT PRIMARY KEY, name TEXT)", "INSERT INTO test.t VALUES (1, NULL), (2, 'two')"],
    read: "SELECT id, name FROM test.t ORDER BY id",
    kept: "1\tNULL\n2\ttwo",
};

#[test]
fn redis_with_aof_keeps_its_data() {
    let server = Instance::start(Redis { aof_always: true, ..Redis::default() }).unwrap();
    lives_and_dies(server, &Words { write: &["SET a 1"], read: "GET a", kept: "1" });
}

#[test]
fn redis_without_aof_forgets() {
    let server = Instance::start(Redis::default()).unwrap();
    lives_and_dies(server, &Words { write: &["SET a 1"], read: "GET a", kept: "(nil)" });
}

#[test]
fn mariadb_keeps_its_data() {
    let server = Instance::start(MariaDb::default()).unwrap();
    assert!(server.ask("SELECT VERSION()").unwrap().contains("MariaDB"));
    lives_and_dies(server, &SQL);
}

#[test]
fn mysql_keeps_its_data() {
    let server = Instance::start(MySql::default()).unwrap();
    assert!(server.ask("SELECT VERSION()").unwrap().starts_with("9."));
    lives_and_dies(server, &SQL);
}

#[test]
fn etcd_keeps_its_data() {
    let server = Instance::start(Etcd::default()).unwrap();
    // Keys and values are in base64; the first answer has its own headers, so only the value is compared.
    server.ask(r#"/v3/kv/put {"key":"YQ==","value":"b25l"}"#).unwrap();
    let read = || server.ask(r#"/v3/kv/range {"key":"YQ=="}"#).unwrap();
    assert!(read().contains("b25l"));
    server.restart().unwrap();
    assert!(read().contains("b25l"));
    lives_and_dies(server, &Words { write: &[], read: "/health", kept: r#"{"health":"true","reason":""}"# });
}

#[test]
fn two_servers_of_one_kind_do_not_meet() {
    let (one, two) = (Instance::start(Redis::default()).unwrap(), Instance::start(Redis::default()).unwrap());
    assert_ne!(one.port(), two.port());
    one.ask("SET a 1").unwrap();
    assert_eq!(two.ask("GET a").unwrap(), "(nil)");
}

#[test]
fn two_mysql_servers_have_identities_of_their_own() {
    let id = |server: &Instance| server.ask("SELECT @@server_uuid").unwrap();
    let (one, two) = (Instance::start(MySql::default()).unwrap(), Instance::start(MySql::default()).unwrap());
    assert_ne!(id(&one), id(&two));
}

/// A server that starts removes the temporary tables that it finds, so it must not look where its neighbours keep
/// theirs.
#[test]
fn a_database_server_keeps_its_temporary_tables_to_itself() {
    for server in [Instance::start(MariaDb::default()).unwrap(), Instance::start(MySql::default()).unwrap()] {
        assert_eq!(server.ask("SELECT @@tmpdir").unwrap(), server.folder().display().to_string());
    }
}

#[test]
fn a_redis_with_a_password_starts_and_its_socket_is_in_its_folder() {
    let extra = ["--requirepass", "secret", "--unixsocket", "s.sock"].map(str::to_owned).into();
    let server = Instance::start(Redis { extra, ..Redis::default() }).unwrap();
    assert!(server.ask("GET a").is_err_and(|error| error.to_string().contains("NOAUTH")));
    assert!(server.folder().join("s.sock").exists());
}

#[test]
fn a_server_that_cannot_start_says_why_at_once() {
    let started = Instant::now();
    let error = Instance::start(Redis { extra: vec!["--no-such-option".into(), "1".into()], ..Redis::default() });
    let error = error.err().expect("it must not start").to_string();
    assert!(error.contains("ended by itself") && error.contains("no-such-option"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10));
}

/// The spawning thread must not be the test's: the server would end with it.
#[test]
fn a_server_outlives_the_thread_that_asked_for_it() {
    let server = thread::spawn(|| Instance::start(Redis::default()).unwrap()).join().unwrap();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(server.ask("PING").unwrap(), "PONG");
}

/// Start, ask, pause, resume, kill -9, restart, drop.
fn lives_and_dies(server: Instance, words: &Words) {
    for request in words.write {
        server.ask(request).unwrap();
    }

    server.pause().unwrap();
    assert!(server.ask(words.read).is_err(), "a paused server must not answer");
    server.resume().unwrap();
    server.ask(words.read).expect("a resumed server answers");

    let (port, killed) = (server.port(), server.pid().expect("it runs"));
    server.kill9().unwrap();
    assert!(is_gone(killed) && server.pid().is_none());
    assert!(server.ask(words.read).is_err(), "a dead server must not answer");
    assert!(server.pause().is_err(), "there is no process to pause");

    server.restart().unwrap();
    assert_eq!(server.port(), port);
    assert_eq!(server.ask(words.read).unwrap(), words.kept);

    // Dropped while it is paused, which no polite signal would get through to.
    server.pause().unwrap();
    let (pid, folder) = (server.pid().expect("it runs"), server.folder().to_owned());
    drop(server);
    assert!(is_gone(pid));
    assert!(!folder.exists());
}

fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}
