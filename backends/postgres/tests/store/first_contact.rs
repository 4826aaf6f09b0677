//! The errors of a first contact that fails. Each names the host, the port, what is wrong and what to write.
//! `docs/first-contact.md` has the table: `DLOCK_WRITE=1` writes it again.

use std::sync::Arc;

use dlock::Registry;
use dlock_testkit::servers::{Certificates, Postgres, shared};
use dlock_testkit::{Mode, Proxy, first_contact_table, first_contact_text, port_of_nobody, server_that_says};

use crate::kit::{Database, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_first_contact_has_its_text() {
    let files = Arc::new(Certificates::make().unwrap());
    let strange = files.file("stranger.pem");
    let hba = ["hostnossl all guarded 127.0.0.1/32 reject", "host all app 127.0.0.1/32 scram-sha-256"];
    let hba = hba.map(str::to_owned).to_vec();
    let guarded = start(Postgres { hba: hba.clone(), certificates: Some(files), ..Postgres::default() }).await;
    let plain = start(Postgres { hba, ..Postgres::default() }).await;
    let mysql = shared().mysql().unwrap().rsplit_once(':').unwrap().1.split('/').next().unwrap().parse().unwrap();
    let database = Database::create(&plain.url(), "contact").await;
    for account in ["app", "few", "late", "lost"] {
        database.change(&format!("CREATE ROLE {account} LOGIN PASSWORD 'right'")).await;
    }
    for change in [
        "GRANT CREATE ON SCHEMA public TO app, late",
        "ALTER ROLE late SET default_transaction_read_only = on",
        "ALTER ROLE lost SET search_path = nope",
        &format!("CREATE DATABASE closed_{}", database.name),
        &format!("REVOKE CONNECT ON DATABASE closed_{} FROM public", database.name),
    ] {
        database.change(change).await;
    }
    let over_tls = Database::create(&guarded.url(), "contact").await;
    over_tls.change("CREATE ROLE guarded LOGIN PASSWORD 'right'").await;
    let (at, secure, nobody) = (plain.port(), guarded.port(), port_of_nobody());
    let (silent, other) = (server_that_says(None), server_that_says(Some("-ERR unknown command\r\n")));
    let (name, there) = (&database.name, &over_tls.name);
    // No old server is installed. So a proxy writes another version into the answers of this one.
    let version = "SELECT current_setting('server_version')";
    let version: String = sqlx::query_scalar(version).fetch_one(&mut database.connect().await).await.unwrap();
    let old = format!("11{}", &version[2..]);
    let proxy = Proxy::start(("127.0.0.1", at)).unwrap();
    proxy.set(Mode::Rewrite { from: version.leak(), to: old.leak() });
    let mut rows = Vec::new();
    for (fault, url, port) in [
        ("refused", format!("postgres://app:right@127.0.0.1:{nobody}/test"), nobody),
        ("unknown name", "postgres://app:right@nowhere.invalid/test?tls=off".to_owned(), 5432),
        ("silent", format!("postgres://app:right@127.0.0.1:{silent}/test"), silent),
        ("wrong protocol", format!("postgres://app:right@127.0.0.1:{other}/test"), other),
        ("wrong protocol: MySQL", format!("postgres://app:right@127.0.0.1:{mysql}/test"), mysql),
        ("TLS wanted", format!("postgres://guarded:right@127.0.0.1:{secure}/{there}?tls=off"), secure),
        ("TLS not there", format!("postgres://app:right@127.0.0.1:{at}/{name}?tls=require"), at),
        (
            "TLS: an authority that did not sign",
            format!("postgres://guarded:right@127.0.0.1:{secure}/{there}?tls=verify&ca={strange}"),
            secure,
        ),
        ("wrong password", format!("postgres://app:wrong@127.0.0.1:{at}/{name}"), at),
        ("no such account", format!("postgres://nobody:right@127.0.0.1:{at}/{name}"), at),
        ("no right to the database", format!("postgres://app:right@127.0.0.1:{at}/closed_{name}"), at),
        ("no right", format!("postgres://few:right@127.0.0.1:{at}/{name}"), at),
        ("no such database", format!("postgres://app:right@127.0.0.1:{at}/nowhere"), at),
        ("no such schema", format!("postgres://app:right@127.0.0.1:{at}/{name}?schema=nowhere"), at),
        ("no schema in the search_path", format!("postgres://lost:right@127.0.0.1:{at}/{name}"), at),
        ("too old", format!("postgres://app:right@{}/{name}?tls=off", proxy.addr()), proxy.addr().port()),
        ("read-only", format!("postgres://late:right@127.0.0.1:{at}/{name}"), at),
    ] {
        let error = Registry::new().connect("sql", &url).await.expect_err(&url);
        rows.push((
            fault,
            first_contact_text(error.message(), &[port], "another one can make: ").replace(name.as_str(), "NAME"),
        ));
    }
    first_contact_table("postgres", &rows);
}
