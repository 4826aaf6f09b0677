//! The attribute over ZooKeeper: its modes, several keys, the fence inside of a body, and what the store has not.

use dlock::backends::zookeeper::client::{Acls, Client, CreateMode};
use dlock::fenced::zookeeper::{Guarded, commit};
use dlock::{Error, ErrorKind, Mode, Registry, Wait, distributed_lock};

use crate::kit::{raw, shared};

const STORE: &str = "attribute";

#[distributed_lock(key = "shared:<id>", mode = read, ttl = "3s", wait = "none", backend = STORE)]
async fn read(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "shared:<id>", mode = write, ttl = "3s", wait = "none", backend = STORE)]
async fn write(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["a:<id>", "b:<id>"], mode = permits(2), ttl = "3s", wait = "none", guard = held, backend = STORE)]
async fn of_both(id: u64) -> Result<Vec<Option<u32>>, Error> {
    Ok(held.iter().map(dlock::Held::slot).collect())
}

#[distributed_lock(key = "guarded:<id>", ttl = "3s", wait = "none", guard = held, backend = STORE)]
async fn guarded(id: u64, client: &Client, path: &str) -> Result<(), Error> {
    let fence = held.fence()?;
    let mut writer = Guarded::by(client, &fence).await?.writer(client)?;
    writer.add_set_data(path, b"held", None).map_err(|error| Error::outage("a wrong path").because(error))?;
    commit(&fence, writer).await.map(drop)
}

#[distributed_lock(key = "long:<id>", ttl = "20m", backend = STORE)]
async fn long(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "kept:<id>", min_hold = "1s", backend = STORE)]
async fn kept(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "once:<id>", once_per = "1h", backend = STORE)]
async fn once(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "passed:<id>", cohort = true, backend = STORE)]
async fn passed(id: u64) -> Result<(), Error> {
    Ok(())
}

/// The store under its name, and a registry that stands for another process.
async fn installed() -> Registry {
    match dlock::connect(STORE, &shared()).await {
        Err(error) if *error.kind() == ErrorKind::AlreadyRegistered => {}
        connected => connected.unwrap(),
    }
    let other = Registry::new();
    other.connect(STORE, &shared()).await.unwrap();
    other
}

fn key(name: &'static str, id: u64) -> dlock::Key {
    dlock::Key::text(name).value(&id)
}

#[tokio::test]
async fn annotated_functions_take_every_lock_mode_and_several_keys() {
    let (other, id) = (installed().await, fastrand::u64(..));
    let take = |name, mode| other.lock(key(name, id)).mode(mode).wait(Wait::None).acquire();
    let reader = take("shared:", Mode::Read).await.unwrap();
    read(id).await.unwrap();
    assert_eq!(write(id).await.unwrap_err().kind(), &ErrorKind::Busy);
    reader.release().await.unwrap();
    let writer = take("shared:", Mode::Write).await.unwrap();
    assert_eq!(read(id).await.unwrap_err().kind(), &ErrorKind::Busy);
    writer.release().await.unwrap();
    write(id).await.unwrap();

    let one = take("b:", Mode::permits(2)).await.unwrap();
    assert_eq!(of_both(id).await.unwrap(), [Some(0), Some(1)]);
    let two = take("b:", Mode::permits(2)).await.unwrap();
    assert_eq!(of_both(id).await.unwrap_err().kind(), &ErrorKind::Busy);
    // All or none: the other key is free again.
    take("a:", Mode::Exclusive).await.unwrap().release().await.unwrap();
    one.release().await.unwrap();
    two.release().await.unwrap();
}

#[tokio::test]
async fn a_body_writes_under_its_own_fence() {
    installed().await;
    let (client, path) = (raw(&shared()).await, format!("/body{}", fastrand::u64(..)));
    client.create(&path, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    guarded(fastrand::u64(..), &client, &path).await.unwrap();
    assert_eq!(client.get_data(&path).await.unwrap().0, b"held");
}

#[tokio::test]
async fn an_option_that_zookeeper_does_not_support_is_refused_before_a_request() {
    installed().await;
    let error = long(1).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TtlOutOfRange { .. }), "{error}");
    assert_eq!(error.attempts(), 0);
    for end in [kept(1).await, once(1).await, passed(1).await] {
        let error = end.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }) && error.attempts() == 0, "{error}");
    }
}
