//! Several hosts in one URL: the one that can be written to is used.

use dlock::ErrorKind;
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::take;
use dlock_testkit::servers::{Postgres, free_port};
use dlock_testkit::{Mode, Proxy};

use crate::cases::support::is_refused;
use crate::kit::{Database, TTL, start, try_open};

row_cases! {
    a_host_that_is_down_is_passed_over
    a_host_that_accepts_and_says_nothing_is_passed_over
    a_host_that_does_not_know_the_account_ends_the_search
    hosts_that_are_all_down_are_an_outage
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_host_is_passed_over() {
    let extra = vec!["-cdefault_transaction_read_only=on".to_owned()];
    let replica = start(Postgres { extra, ..Postgres::default() }).await;
    let primary = start(Postgres::default()).await;
    let url = format!("postgres://dlock@127.0.0.1:{},127.0.0.1:{}/postgres?tls=off", replica.port(), primary.port());
    let store = try_open(&url).await.unwrap();
    let hold = take(&store, &dlock_testkit::holds::claim("a", TTL)).await;
    let direct = try_open(&primary.url()).await.unwrap();
    is_refused(&direct, &dlock_testkit::holds::claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    let error = try_open(&replica.url()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotPrimary, "{error}");
    assert!(replica.ask("SELECT count(*) FROM dlock_locks").is_err(), "the replica has tables of dlock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_in_a_folder_is_as_good_as_a_host() {
    let server = start(Postgres::default()).await;
    let folder = server.folder().display().to_string().replace('/', "%2F");
    let url = format!("postgres://dlock@localhost:{}/postgres?socket={folder}", server.port());
    let store = try_open(&url).await.unwrap();
    let hold = take(&store, &dlock_testkit::holds::claim("a", TTL)).await;
    is_refused(&try_open(&server.url()).await.unwrap(), &dlock_testkit::holds::claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

fn hosts(database: &Database, first: u16) -> String {
    format!("postgres://dlock@127.0.0.1:{first},{}/{}?tls=off", database.addr(), database.name)
}

async fn a_host_that_is_down_is_passed_over(database: Database) {
    let one = try_open(&hosts(&database, free_port())).await.unwrap();
    let hold = take(&one, &database.claim("a", TTL)).await;
    is_refused(&database.store().await, &database.claim("a", TTL)).await;
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    assert!(format!("{one:?}").contains(&format!("{}/{}", database.addr(), database.name)), "{one:?}");
}

async fn a_host_that_accepts_and_says_nothing_is_passed_over(database: Database) {
    let proxy = Proxy::start(database.addr()).unwrap();
    proxy.set(Mode::BLACKHOLE);
    let one = try_open(&format!("{}&connect_timeout=2s", hosts(&database, proxy.port()))).await.unwrap();
    take(&one, &database.claim("a", TTL)).await;
    is_refused(&database.store().await, &database.claim("a", TTL)).await;
}

async fn a_host_that_does_not_know_the_account_ends_the_search(database: Database) {
    let url = hosts(&database, database.addr().port()).replace("dlock@", "nobody:canary@");
    let error = try_open(&url).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (&ErrorKind::PermissionDenied, Some("28P01")), "{error}");
    let text = dlock_testkit::text_of(&error);
    assert!(!text.contains("canary") && !text.contains("nobody"), "{text}");
}

async fn hosts_that_are_all_down_are_an_outage(_database: Database) {
    let url = format!("postgres://dlock@127.0.0.1:{},127.0.0.1:{}/x?tls=off", free_port(), free_port());
    let error = try_open(&url).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
}
