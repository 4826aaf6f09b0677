//! The host that can be written to is used.

use dlock::ErrorKind;
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::{claim, take};

use super::cases::support::is_refused;
use super::kit::{Kind, TTL, try_open};

async fn a_read_only_host_is_passed_over(kind: Kind) {
    let start = move || (kind.start().unwrap(), kind.start().unwrap());
    let (replica, primary) = tokio::task::spawn_blocking(start).await.unwrap();
    tokio::task::block_in_place(|| replica.ask("SET GLOBAL read_only = 1")).unwrap();
    let url = format!("mysql://root@127.0.0.1:{},127.0.0.1:{}/test?tls=off", replica.port(), primary.port());
    let store = try_open(&url).await.unwrap();
    let hold = take(&store, &claim("a", TTL)).await;
    is_refused(&try_open(&primary.url()).await.unwrap(), &claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    let error = try_open(&replica.url()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotPrimary, "{error}");
    let asked = tokio::task::block_in_place(|| replica.ask("SELECT COUNT(*) FROM test.dlock_locks"));
    assert!(asked.is_err(), "the replica has tables of dlock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_mariadb_is_passed_over() {
    a_read_only_host_is_passed_over(Kind::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_mysql_is_passed_over() {
    a_read_only_host_is_passed_over(Kind::MySql).await;
}

async fn a_socket_is_as_good_as_a_host(kind: Kind) {
    let server = tokio::task::spawn_blocking(move || kind.start()).await.unwrap().unwrap();
    let socket = server.folder().join("s.sock").display().to_string().replace('/', "%2F");
    let store = try_open(&format!("mysql://root@/test?socket={socket}")).await.unwrap();
    let hold = take(&store, &claim("a", TTL)).await;
    is_refused(&try_open(&server.url()).await.unwrap(), &claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_of_a_mariadb_is_as_good_as_a_host() {
    a_socket_is_as_good_as_a_host(Kind::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_of_a_mysql_is_as_good_as_a_host() {
    a_socket_is_as_good_as_a_host(Kind::MySql).await;
}
