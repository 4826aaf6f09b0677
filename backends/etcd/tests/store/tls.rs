//! TLS: which certificates are accepted, and an account that is the client's certificate.

use dlock::backends::etcd::Etcd;
use dlock::backends::etcd::client::{Client, Permission, PermissionType};
use dlock::{Clock, ErrorKind};
use dlock_contract::{Backend, Released};
use dlock_testkit::servers::EtcdTls;

use crate::names::{EPOCHS, LOCKS};
use crate::server::{ask, claim, lock};

async fn open(url: &str) -> dlock::Result<Etcd> {
    Etcd::open(url, &Clock::system()).await
}

async fn cycle(url: &str) {
    let process = open(url).await.unwrap();
    let hold = ask(&process, &claim(&lock("tls"))).await.unwrap();
    assert_eq!(process.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn certificates_of_both_sides_are_checked() {
    let it = tokio::task::spawn_blocking(EtcdTls::start).await.unwrap().unwrap();
    let [ours, strange, cert, key] = ["ca.pem", "stranger.pem", "client.pem", "client.key"].map(|name| it.file(name));
    let own = format!("cert={cert}&key={key}");
    cycle(&it.url()).await;
    let by_address = format!("etcd://127.0.0.1:{}?tls=verify&ca={ours}&{own}", it.port);
    cycle(&by_address).await;
    // Host lists too.
    cycle(&by_address.replace("etcd://", "etcd://127.0.0.1:1,")).await;
    for (bad, what) in [
        (format!("etcd://localhost:{}?tls=verify&{own}", it.port), "the authority is not the system's"),
        (format!("etcd://localhost:{}?tls=verify&ca={strange}&{own}", it.port), "another authority"),
        (format!("etcd://[::ffff:127.0.0.1]:{}?tls=verify&ca={ours}&{own}", it.port), "another name"),
        (format!("etcd://localhost:{}?tls=verify&ca={ours}", it.port), "no certificate of ours"),
        (format!("etcd://localhost:{}", it.port), "no TLS"),
    ] {
        let error = open(&bad).await.err().unwrap_or_else(|| panic!("connected: {what}"));
        assert_eq!(error.kind(), &ErrorKind::Outage, "{what}: {error}");
    }
}

#[tokio::test]
async fn the_name_in_a_clients_certificate_is_its_account() {
    let it = tokio::task::spawn_blocking(EtcdTls::start).await.unwrap().unwrap();
    let mut raw = Client::connect([it.server.addr().to_string()], None).await.unwrap();
    raw.user_add("root", "r", None).await.unwrap();
    raw.user_grant_role("root", "root").await.unwrap();
    // The subject of `client.pem`.
    raw.user_add("client", "unused", None).await.unwrap();
    raw.role_add("locks").await.unwrap();
    raw.user_grant_role("client", "locks").await.unwrap();
    raw.role_grant_permission("locks", Permission::new(PermissionType::Readwrite, LOCKS).with_prefix()).await.unwrap();
    raw.auth_enable().await.unwrap();
    let error = open(&it.url()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::PermissionDenied);
    assert!(error.to_string().contains(EPOCHS), "{error}");

    let root = dlock::backends::etcd::client::ConnectOptions::new().with_user("root", "r");
    let mut root = Client::connect([it.server.addr().to_string()], Some(root)).await.unwrap();
    let epochs = Permission::new(PermissionType::Readwrite, EPOCHS).with_prefix();
    root.role_grant_permission("locks", epochs).await.unwrap();
    cycle(&it.url()).await;
}
