//! Another server answers under the same address, as after a failover.

use dlock::ErrorKind;
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::{confirm, stand, take};
use dlock_testkit::servers::Instance;
use dlock_testkit::{Mode, Proxy, wait_until};
use sqlx::Connection;

use super::kit::{Database, TTL};

cases_with_own_server! { on both:
    a_renewal_by_another_server_is_unanswered_and_never_confirmed
    no_session_of_a_stranger_is_ended_after_a_restart
}

async fn a_renewal_by_another_server_is_unanswered_and_never_confirmed(server: Instance, database: Database) {
    let store = database.store().await;
    let before = take(&store, &database.claim("a", TTL)).await;
    assert!(matches!(confirm(&store, &before).await, Standing::Renewed(_)));
    // Replication gives each server an id of its own. The rows are the same ones.
    tokio::task::block_in_place(|| server.ask("SET GLOBAL server_id = 4711")).unwrap();
    database.end_sessions().await;
    let after = take(&store, &database.claim("b", TTL)).await;
    let [moved, here] = &store.renew(&[&before, &after]).await[..] else { panic!("two answers") };
    assert_eq!(*moved.as_ref().unwrap_err().kind(), ErrorKind::Outage, "{moved:?}");
    assert!(moved.as_ref().unwrap_err().to_string().contains("another server"), "{moved:?}");
    assert!(matches!(here, Ok(Standing::Renewed(_))), "{here:?}");
    // An end of the hold is right wherever the row is.
    assert_eq!(store.release(&before).await.unwrap(), Released::Released);
}

/// The server numbers its sessions from the beginning again.
async fn no_session_of_a_stranger_is_ended_after_a_restart(server: Instance, database: Database) {
    // Numbers that the stores do not reach soon after the restart.
    for _ in 0..40 {
        database.connect().await.close().await.unwrap();
    }
    let near = crate::row_kit::open(&database.url()).await.unwrap();
    let _before = take(&near, &database.claim("a", TTL)).await;
    let proxy = Proxy::start(database.addr()).unwrap();
    let far = crate::row_kit::open(&database.url_at(proxy.port())).await.unwrap();
    let claim = database.claim("a", TTL);
    let waiting = tokio::spawn(stand(&far, &claim).await.signal.unwrap());
    wait_until("it waits", async || !database.in_row_waits().await.is_empty()).await.unwrap();
    let last: u64 = database.in_row_waits().await[0].parse().unwrap();
    // Nothing is told of the end of the old connections.
    proxy.set(Mode::BLACKHOLE);
    tokio::task::block_in_place(|| server.restart()).unwrap();
    proxy.set(Mode::Pass);
    // Over new connections, the monitor's too.
    let mut other = None;
    wait_until("the store works again", async || {
        other = match far.try_acquire(&database.claim("b", TTL), Queue::Leave).await {
            Ok(Attempt::Acquired(hold)) => Some(hold),
            _ => None,
        };
        other.is_some()
    })
    .await
    .unwrap();
    let other = other.unwrap();
    let mut tx = crate::row_kit::transaction_of(&other).unwrap();
    let conn = tx.conn().await.unwrap();
    let asked = async || matches!(&far.renew(&[&other]).await[..], [Ok(Standing::Renewed(_))]);
    wait_until("the monitor answers", asked).await.unwrap();
    drop(conn);
    let mut strangers = Vec::new();
    loop {
        let mut stranger = database.connect().await;
        let number: (u64,) = sqlx::query_as("SELECT CONNECTION_ID()").fetch_one(&mut stranger).await.unwrap();
        strangers.push(stranger);
        if number.0 >= last {
            assert_eq!(number.0, last, "the number was given before: nothing is proven");
            break;
        }
    }
    waiting.abort();
    wait_until("the wait has ended", async || far.abandon(&claim).await.is_ok()).await.unwrap();
    for stranger in &mut strangers {
        stranger.ping().await.expect("a stranger's session was ended");
    }
}
