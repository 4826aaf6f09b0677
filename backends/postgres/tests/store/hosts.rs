//! The host that can be written to is used.

use dlock::ErrorKind;
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::take;
use dlock_testkit::servers::Postgres;

use crate::cases::support::is_refused;
use crate::kit::{TTL, start, try_open};

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
