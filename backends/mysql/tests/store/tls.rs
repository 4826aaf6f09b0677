//! TLS: when a URL must ask for it, and which certificates are accepted.

use dlock::{Clock, Error, ErrorKind};
use dlock_contract::{Backend, Released};
use dlock_mysql::{lease, named, row};
use dlock_testkit::holds::take;
use dlock_testkit::servers::{Certificates, Instance, MariaDb, MySql};
use dlock_testkit::text_of;
use sqlx::{AssertSqlSafe, Executor};

use crate::named_kit::TTL;
use crate::server::{Database, Kind};

pub(crate) const PASSWORD: &str = "canary-in-clear";

#[tokio::test]
async fn a_url_with_another_host_than_this_one_must_set_tls() {
    let url = format!("mysql://app:{PASSWORD}@db.invalid/test");
    let error = refused(&url).await;
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
    assert!(error.to_string().contains("tls=verify"), "{error}");
    for said in ["off", "require", "verify"] {
        // Said, so it is tried: a name that cannot be looked up.
        let error = refused(&format!("{url}?tls={said}")).await;
        assert!(matches!(error.kind(), ErrorKind::Outage), "{said}: {error}");
    }
}

async fn certificates_are_looked_at(kind: Kind) {
    let files = Certificates::make().unwrap();
    let [ca, cert, key] = ["ca.pem", "server.pem", "server.key"].map(|name| files.file(name));
    let extra = vec![format!("--ssl-ca={ca}"), format!("--ssl-cert={cert}"), format!("--ssl-key={key}")];
    let started = tokio::task::spawn_blocking(move || match kind {
        Kind::MariaDb => Instance::start(MariaDb { extra }),
        Kind::MySql => Instance::start(MySql { extra }),
    });
    let server = started.await.unwrap().unwrap();
    let database = Database::create(&server.url(), "tls").await;
    let mut root = database.connect().await;
    for (account, need) in [("guarded", "SSL"), ("known", "X509")] {
        let create = format!("CREATE USER '{account}'@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE {need}");
        root.execute(AssertSqlSafe(create)).await.unwrap();
        root.execute(AssertSqlSafe(format!("GRANT ALL ON {}.* TO '{account}'@'%'", database.name))).await.unwrap();
    }
    let url = |account: &str, query: &str| format!("{}?{query}", database.url_of(&format!("{account}:{PASSWORD}")));
    let [ours, strange, cert, key] =
        ["ca.pem", "stranger.pem", "client.pem", "client.key"].map(|name| files.file(name));
    // The same server under a name that its certificate does not have.
    let mapped = format!("mysql://guarded:{PASSWORD}@[::ffff:127.0.0.1]:{}/{}", server.port(), database.name);
    for good in [
        url("guarded", "tls=require"),
        format!("{mapped}?tls=require"),
        url("guarded", &format!("tls=verify&ca={ours}")),
        url("known", &format!("tls=verify&ca={ours}&cert={cert}&key={key}")),
    ] {
        let clock = Clock::system();
        let named = named::open(&good, &clock).await.unwrap();
        let lease = lease::open(&format!("{good}&table_prefix=lease_"), &clock).await.unwrap();
        let row = row::open(&format!("{good}&way=row&table_prefix=row_"), &clock).await.unwrap();
        for store in [&named as &dyn Backend, &lease, &row] {
            let hold = take(store, &database.claim("a", TTL)).await;
            assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
            store.close().await;
        }
    }
    for (bad, kind) in [
        (url("guarded", "tls=verify"), ErrorKind::Outage),
        (url("guarded", &format!("tls=verify&ca={strange}")), ErrorKind::Outage),
        (format!("{mapped}?tls=verify&ca={ours}"), ErrorKind::Outage),
        (url("guarded", "tls=off"), ErrorKind::PermissionDenied),
        (url("known", &format!("tls=verify&ca={ours}")), ErrorKind::PermissionDenied),
    ] {
        let error = refused(&bad).await;
        // MySQL's newer kind of password is not even sent without TLS.
        let unencrypted = bad.ends_with("tls=off") && matches!(error.kind(), ErrorKind::Unsupported { .. });
        assert!(*error.kind() == kind || unencrypted, "{bad}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_a_mariadb_are_checked() {
    certificates_are_looked_at(Kind::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_a_mysql_are_checked() {
    certificates_are_looked_at(Kind::MySql).await;
}

pub(crate) async fn refused(url: &str) -> Error {
    let error = named::open(url, &Clock::system()).await.unwrap_err();
    let text = text_of(&error);
    assert!(!text.contains(PASSWORD), "{text}");
    error
}
