//! The errors of a first contact that fails. Each names the host, the port, what is wrong and what to write.
//! `docs/first-contact.md` has the tables: `DLOCK_WRITE=1` writes them again.

use dlock::Registry;
use dlock_testkit::servers::{Certificates, Instance, MariaDb, MySql, shared};
use dlock_testkit::{Mode, Proxy, first_contact_table, first_contact_text, port_of_nobody, server_that_says};
use sqlx::{AssertSqlSafe, Executor};

use crate::server::{Database, Kind};

/// The faults of both servers.
async fn texts(kind: Kind) -> Vec<(&'static str, String)> {
    let files = Certificates::make().unwrap();
    let [ca, cert, key, strange] = ["ca.pem", "server.pem", "server.key", "stranger.pem"].map(|name| files.file(name));
    let guarded = vec![format!("--ssl-ca={ca}"), format!("--ssl-cert={cert}"), format!("--ssl-key={key}")];
    // A server without TLS: MySQL takes no version of it, and MariaDB has no certificate.
    let plain = match kind {
        Kind::MySql => vec!["--tls-version=".to_owned()],
        Kind::MariaDb => Vec::new(),
    };
    let started = tokio::task::spawn_blocking(move || match kind {
        Kind::MariaDb => [guarded, plain].map(|extra| Instance::start(MariaDb { extra }).unwrap()),
        Kind::MySql => [guarded, plain].map(|extra| Instance::start(MySql { extra }).unwrap()),
    });
    let [guarded, plain] = started.await.unwrap();
    let postgres = shared().postgres().unwrap().rsplit_once(':').unwrap().1.split('/').next().unwrap().parse().unwrap();
    let over_tls = Database::create(&guarded.url(), "contact").await;
    let database = Database::create(&plain.url(), "contact").await;
    let (mut root, mut secure_root) = (database.connect().await, over_tls.connect().await);
    over_tls.connect().await.execute("SET GLOBAL require_secure_transport = ON").await.unwrap();
    for change in
        ["CREATE USER 'app'@'%' IDENTIFIED BY 'right'", &format!("GRANT ALL ON {}.* TO 'app'@'%'", over_tls.name)]
    {
        secure_root.execute(AssertSqlSafe(change)).await.unwrap();
    }
    for change in [
        "CREATE USER 'few'@'%'",
        &format!("GRANT SELECT ON {}.* TO 'few'@'%'", database.name),
        // The server takes others without TLS.
        "CREATE USER 'guarded'@'%' REQUIRE SSL",
        &format!("GRANT ALL ON {}.* TO 'guarded'@'%'", database.name),
    ] {
        root.execute(AssertSqlSafe(change)).await.unwrap();
    }
    let (at, secure, nobody) = (plain.port(), guarded.port(), port_of_nobody());
    let (silent, other) = (server_that_says(None), server_that_says(Some("-ERR unknown command\r\n")));
    let (name, there) = (&database.name, &over_tls.name);
    // No old server is installed. So a proxy writes another version into the answers of this one.
    let version: String = sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut root).await.unwrap();
    let old = match kind {
        Kind::MySql => format!("5.7{}", &version[3..]),
        Kind::MariaDb => version.replacen("10.11.", "10.05.", 1),
    };
    let proxy = Proxy::start(("127.0.0.1", at)).unwrap();
    proxy.set(Mode::Rewrite { from: version.leak(), to: old.leak() });
    let mut rows = Vec::new();
    for (fault, url, port) in [
        ("refused", format!("mysql://root@127.0.0.1:{nobody}/test"), nobody),
        ("unknown name", "mysql://root@nowhere.invalid/test?tls=off".to_owned(), 3306),
        ("silent", format!("mysql://root@127.0.0.1:{silent}/test"), silent),
        ("wrong protocol", format!("mysql://root@127.0.0.1:{other}/test"), other),
        ("wrong protocol: PostgreSQL", format!("mysql://root@127.0.0.1:{postgres}/test"), postgres),
        ("TLS wanted", format!("mysql://root@127.0.0.1:{secure}/test?tls=off"), secure),
        ("TLS wanted by the account (REQUIRE SSL)", format!("mysql://guarded@127.0.0.1:{at}/{name}?tls=off"), at),
        ("TLS not there", format!("mysql://root@127.0.0.1:{at}/test?tls=require"), at),
        (
            "TLS: an authority that did not sign",
            format!("mysql://root@127.0.0.1:{secure}/test?tls=verify&ca={strange}"),
            secure,
        ),
        ("wrong password", format!("mysql://app:wrong@127.0.0.1:{secure}/{there}?tls=require"), secure),
        ("no right to the database", format!("mysql://app:right@127.0.0.1:{secure}/mysql?tls=require"), secure),
        ("no right", format!("mysql://few@127.0.0.1:{at}/{name}"), at),
        ("no such database", format!("mysql://root@127.0.0.1:{at}/nowhere"), at),
        ("no such database, and few rights", format!("mysql://few@127.0.0.1:{at}/nowhere"), at),
        ("too old", format!("mysql://root@{}/{name}?tls=off", proxy.addr()), proxy.addr().port()),
    ] {
        let error = Registry::new().connect("sql", &url).await.expect_err(&url);
        rows.push((
            fault,
            first_contact_text(error.message(), &[port], "another one can make: ").replace(name.as_str(), "NAME"),
        ));
    }
    secure_root.execute("SET GLOBAL read_only = ON").await.unwrap();
    let url = format!("mysql://app:right@127.0.0.1:{secure}/{there}?tls=require");
    let error = Registry::new().connect("sql", &url).await.expect_err(&url);
    rows.push(("read-only", first_contact_text(error.message(), &[secure], "")));
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_first_contact_with_mysql_has_its_text() {
    first_contact_table("mysql", &texts(Kind::MySql).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_first_contact_with_mariadb_has_its_text() {
    first_contact_table("mariadb", &texts(Kind::MariaDb).await);
}
