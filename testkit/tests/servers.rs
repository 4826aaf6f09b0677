//! Every server kind against the promises of [`Instance`].

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::servers::{Certificates, Etcd, Instance, MariaDb, MySql, PgBouncer, Postgres, Redis};

/// The commands of one kind of server: to write a value, to read it back, and the answer if it was kept.
struct Words<'a> {
    write: &'a [&'a str],
    read: &'a str,
    kept: &'a str,
}

const SQL: Words<'_> = Words {
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
fn postgres_keeps_its_data() {
    let server = Instance::start(Postgres::default()).unwrap();
    assert!(server.ask("SELECT version()").unwrap().starts_with("PostgreSQL 15."));
    assert_eq!(server.ask("SHOW fsync").unwrap(), "on");
    let write = &["CREATE TABLE t (id INT PRIMARY KEY, name TEXT)", "INSERT INTO t VALUES (1, NULL), (2, 'two')"];
    lives_and_dies(server, &Words { write, read: "SELECT id, name FROM t ORDER BY id", kept: "1\tNULL\n2\ttwo" });
}

#[test]
fn pgbouncer_stands_before_its_server() {
    let server = Instance::start(Postgres::default()).unwrap();
    let bouncer = Instance::start(PgBouncer::before(&server)).unwrap();
    lives_and_dies(bouncer, &Words { write: &[], read: "SHOW port", kept: &server.port().to_string() });
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
fn two_postgres_servers_have_data_of_their_own() {
    let (one, two) = (Instance::start(Postgres::default()).unwrap(), Instance::start(Postgres::default()).unwrap());
    assert_eq!(one.ask("CREATE TABLE t (id INT)").unwrap(), "OK 0");
    let error = two.ask("SELECT id FROM t").unwrap_err().to_string();
    assert!(error.contains("42P01: relation \"t\" does not exist"), "{error}");
}

#[test]
fn a_postgres_with_certificates_speaks_tls() {
    let files = Arc::new(Certificates::make().unwrap());
    let known = "hostssl all known 127.0.0.1/32 trust clientcert=verify-ca".to_owned();
    let (hba, certificates) = (vec![known], Some(files.clone()));
    let server = Instance::start(Postgres { hba, certificates, ..Postgres::default() }).unwrap();
    let [ca, strange, cert, key] = ["ca.pem", "stranger.pem", "client.pem", "client.key"].map(|name| files.file(name));
    let url = |account: &str, ca: &str| {
        let url = server.url().replace("dlock", account);
        format!("{url}?sslmode=verify-full&sslrootcert={ca}")
    };
    assert_eq!(psql(&url("dlock", &ca), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").unwrap(), "t");
    assert!(psql(&url("dlock", &strange), "SELECT 1").is_err());
    server.ask("CREATE ROLE known LOGIN").unwrap();
    let with_ours = format!("{}&sslcert={cert}&sslkey={key}", url("known", &ca));
    assert_eq!(psql(&with_ours, "SELECT current_user").unwrap(), "known");
    let error = psql(&url("known", &ca), "SELECT 1").unwrap_err();
    assert!(error.contains("requires a valid client certificate"), "{error}");
}

#[test]
fn an_account_of_postgres_must_tell_its_password() {
    let server = Instance::start(Postgres::default()).unwrap();
    server.ask("CREATE ROLE app LOGIN PASSWORD 'c@n/a:r?y#%é'").unwrap();
    let by = |account: &str| psql(&server.url().replace("dlock", account), "SELECT current_user");
    assert_eq!(by("app:c%40n%2Fa%3Ar%3Fy%23%25%C3%A9").unwrap(), "app");
    assert!(by("app:another").unwrap_err().contains("password authentication failed"));
}

/// The kernel would keep it until the machine restarts.
#[test]
fn a_postgres_leaves_no_shared_memory_behind() {
    let pieces = || std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let server = Instance::start(Postgres::default()).unwrap();
    let lock = std::fs::read_to_string(server.folder().join("data/postmaster.pid")).unwrap();
    let id = lock.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap();
    let is_there = || pieces().lines().any(|line| line.split_whitespace().nth(1) == Some(id));
    assert!(is_there());
    drop(server);
    assert!(!is_there());
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
    assert!(started.elapsed() < Duration::from_secs(60));
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

/// The answer to `psql`, which is part of every PostgreSQL installation.
fn psql(url: &str, statement: &str) -> Result<String, String> {
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--no-password", "--no-align", "--tuples-only", "--command", statement, url]);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}
