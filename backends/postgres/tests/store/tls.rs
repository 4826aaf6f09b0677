//! TLS: when a URL must ask for it, and which certificates are accepted.

use std::sync::Arc;

use dlock::{Clock, Error, ErrorKind, Key, LockKey};
use dlock_contract::{Backend, Released};
use dlock_postgres::named;
use dlock_testkit::holds::{claim_on, take};
use dlock_testkit::servers::{Certificates, Postgres};
use dlock_testkit::text_of;

use crate::kit::{Database, TTL, start, try_open};
use crate::row_kit;

const PASSWORD: &str = "canary-in-clear";

#[tokio::test]
async fn a_url_with_another_host_than_this_one_must_set_tls() {
    let url = format!("postgres://app:{PASSWORD}@db.invalid/test");
    let error = refused(&url).await;
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
    assert!(error.to_string().contains("tls=verify"), "{error}");
    for said in ["off", "require", "verify"] {
        // Said, so it is tried: a name that cannot be looked up.
        let error = refused(&format!("{url}?tls={said}")).await;
        assert!(matches!(error.kind(), ErrorKind::Outage), "{said}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_checked() {
    let files = Arc::new(Certificates::make().unwrap());
    // The name of an account that logs in by its certificate is that of the certificate.
    let hba = [
        "hostnossl all guarded 127.0.0.1/32 reject",
        "hostssl all guarded 127.0.0.1/32 scram-sha-256",
        "hostssl all client 127.0.0.1/32 cert",
    ];
    let hba = hba.map(str::to_owned).to_vec();
    let server = start(Postgres { hba, certificates: Some(files.clone()), ..Postgres::default() }).await;
    let database = Database::create(&server.url(), "tls").await;
    for account in ["guarded", "client"] {
        database.change(&format!("CREATE ROLE {account} LOGIN PASSWORD '{PASSWORD}'")).await;
        database.change(&format!("GRANT ALL ON SCHEMA public TO {account}")).await;
    }
    // Made by one account, and used by both.
    drop(database.store().await);
    drop(named::open(&database.url(), &Clock::system()).await.unwrap());
    drop(row_kit::open(&database.url()).await.unwrap());
    for kind in ["TABLES", "SEQUENCES"] {
        database.change(&format!("GRANT ALL ON ALL {kind} IN SCHEMA public TO guarded, client")).await;
    }
    let url = |account: &str, query: &str| format!("{}?{query}", database.url_of(&format!("{account}:{PASSWORD}")));
    let [ours, strange, cert, key] =
        ["ca.pem", "stranger.pem", "client.pem", "client.key"].map(|name| files.file(name));
    // The same server under a name that its certificate does not have.
    let mapped = format!("postgres://guarded:{PASSWORD}@[::ffff:127.0.0.1]:{}/{}", server.port(), database.name);
    for (number, good) in [
        url("guarded", "tls=require"),
        format!("{mapped}?tls=require"),
        url("guarded", &format!("tls=verify&ca={ours}")),
        url("client", &format!("tls=verify&ca={ours}&cert={cert}&key={key}")),
    ]
    .iter()
    .enumerate()
    {
        let store = try_open(good).await.unwrap_or_else(|error| panic!("{good}: {error}"));
        let hold = take(&store, &database.claim(&format!("row {number}"), TTL)).await;
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        drop(named::open(good, &Clock::system()).await.unwrap());
        let rows = row_kit::open(&format!("{good}&way=row")).await.unwrap();
        let row = claim_on(&LockKey::new("row", Key::new().value(&number)).unwrap(), TTL, |_| ());
        let hold = take(&rows, &row).await;
        assert_eq!(rows.release(&hold).await.unwrap(), Released::Released);
    }
    for (bad, kind) in [
        (url("guarded", "tls=verify"), ErrorKind::Outage),
        (url("guarded", &format!("tls=verify&ca={strange}")), ErrorKind::Outage),
        (format!("{mapped}?tls=verify&ca={ours}"), ErrorKind::Outage),
        (url("guarded", "tls=off"), ErrorKind::PermissionDenied),
        (url("client", &format!("tls=verify&ca={ours}")), ErrorKind::PermissionDenied),
    ] {
        let error = refused(&bad).await;
        assert_eq!(*error.kind(), kind, "{bad}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_gets_no_password_from_a_client_that_asks_for_it() {
    let server = start(Postgres::default()).await;
    for said in ["require", "verify"] {
        let url = server.url().replacen("dlock@", &format!("dlock:{PASSWORD}@"), 1);
        let error = refused(&format!("{url}?tls={said}")).await;
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{said}: {error}");
    }
}

async fn refused(url: &str) -> Error {
    let error = try_open(url).await.map(drop).unwrap_err();
    let text = text_of(&error);
    assert!(!text.contains(PASSWORD), "{text}");
    error
}
