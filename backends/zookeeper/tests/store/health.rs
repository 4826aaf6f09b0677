//! The servers' own words about themselves, and a server that is read-only.

use std::time::Duration;

use dlock::ErrorKind;
use dlock::backends::zookeeper::client::{Acls, Client, CreateMode, Error as ClientError, SessionState};
use dlock_contract::{Attempt, Backend, Queue};
use dlock_testkit::holds::claim_on;
use dlock_testkit::servers::{self, Instance, ZooKeeper};

use crate::kit::{TTL, line, lock, open, opened, own, path, process, raw, shared};

#[tokio::test]
async fn a_server_tells_its_version() {
    let health = process().await.ready().await.unwrap();
    assert!(health.version.as_deref().is_some_and(|version| version.starts_with("ZooKeeper 3.")), "{health}");
    assert_eq!(health.role, None);
}

#[tokio::test]
async fn a_silent_host_does_not_hide_the_version_of_the_others() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("zk://{},{}", silent.local_addr().unwrap(), shared().strip_prefix("zk://").unwrap());
    let health = opened(&url).await.ready().await.unwrap();
    assert!(health.version.is_some(), "{health}");
}

#[tokio::test]
async fn a_server_that_is_read_only_is_refused() {
    // One of three: it finds no majority, and goes on with reads alone.
    let mut recipe = ZooKeeper::ensemble(3).swap_remove(0);
    recipe.java.push("-Dreadonlymode.enabled=true".into());
    recipe.settings.push("localSessionsEnabled=true".into());
    let server = Instance::start(recipe).unwrap();
    let raw = Client::connector().with_readonly(true).connect(&server.addr().to_string()).await.unwrap();
    assert_eq!(raw.state(), SessionState::ConnectedReadOnly);
    raw.list_children("/").await.unwrap();
    let written = raw.create("/n", b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await;
    assert_eq!(written.unwrap_err(), ClientError::NotReadOnly);

    let error = open(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NotPrimary, "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_of_two_ensembles_are_refused() {
    let one = own();
    let port = servers::free_port();
    let url = format!("{},127.0.0.1:{port}", one.url());
    // It cannot be checked while it is down.
    let store = opened(&url).await;
    store.ready().await.unwrap();
    let _other = tokio::task::spawn_blocking(move || Instance::start_on(ZooKeeper::default(), port).unwrap());
    let _other = _other.await.unwrap();
    let errors = [store.ready().await.unwrap_err(), open(&url).await.unwrap_err()];
    for error in errors {
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "url"), "{error}");
        assert!(error.message().contains("two ensembles"), "{error}");
    }
    // Each ttl has a session of its own, on a host by chance.
    let (mut refused, theirs) = (false, raw(&format!("zk://127.0.0.1:{port}")).await);
    for more in 0..60 {
        let key = lock("ensembles");
        let claim = claim_on(&key, TTL + Duration::from_millis(more), |_| ());
        match store.try_acquire(&claim, Queue::Leave).await {
            Ok(Attempt::Acquired(hold)) => {
                assert_eq!(line(&theirs, &path(&store, &key)).await, [""; 0], "a lock of the other ensemble");
                store.release(&hold).await.unwrap();
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) if error.is_retryable() => {}
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "url"), "{error}");
                assert!(error.message().contains(&format!("127.0.0.1:{port} does not know a session of")), "{error}");
                refused = true;
                break;
            }
        }
    }
    assert!(refused, "no session met the other ensemble");
}
