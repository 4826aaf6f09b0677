//! A renewal and work that come late. No engine: each request is made by the test.

use std::time::Duration;

use dlock_contract::{Backend, Released};
use dlock_testkit::holds::{confirm, take};
use dlock_testkit::{Mode, Proxy};
use sqlx::Executor;

use super::world::World;
use crate::row_kit::{Database, open, transaction_of};

row_lock_cases! {
    work_that_begins_after_the_body_has_ended_is_told_by_the_release
    a_commit_waits_for_a_slow_renewal
}

const TTL: Duration = Duration::from_secs(9);

async fn work_that_begins_after_the_body_has_ended_is_told_by_the_release(database: Database) {
    let world = World::new(database).await;
    let store = open(&world.database.url()).await.unwrap();
    let claim = world.database.claim("b", TTL);
    for works in [false, true] {
        let hold = take(&store, &claim).await;
        assert!(!store.settle().unwrap().has_work(&hold));
        if works {
            let mut tx = transaction_of(&hold).unwrap();
            tx.conn().await.unwrap().execute("INSERT INTO data VALUES (1, 0)").await.unwrap();
        }
        let released = store.release(&hold).await;
        assert_eq!(released.as_ref().ok(), (!works).then_some(&Released::Released), "{released:?}");
        assert_eq!(world.data().await, [""; 0]);
    }
    take(&store, &world.database.claim("b", TTL)).await;
}

async fn a_commit_waits_for_a_slow_renewal(database: Database) {
    let world = World::new(database).await;
    let (proxy, url) = Proxy::in_front_of(&world.database.url()).unwrap();
    let far = open(&url).await.unwrap();
    let hold = take(&far, &world.database.claim("b", TTL)).await;
    let mut tx = transaction_of(&hold).unwrap();
    tx.conn().await.unwrap().execute("INSERT INTO data VALUES (1, 0)").await.unwrap();
    drop(tx);
    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: Duration::from_millis(400) });
    let (settle, sent) = (far.settle().unwrap(), proxy.sent());
    let (_, settled) = tokio::join!(confirm(&far, &hold), async {
        dlock_testkit::wait_until("the renewal is sent", async || proxy.sent() > sent).await.unwrap();
        settle.settle(&hold).await
    });
    settled.unwrap();
    assert_eq!(world.data().await, ["1"]);
}
