//! Another server answers under the same address, as after a failover.

use dlock::ErrorKind;
use dlock_contract::{Backend, Released, Standing};
use dlock_testkit::holds::{confirm, take};
use dlock_testkit::servers::Instance;

use super::kit::{Database, TTL};

cases_with_own_server! { on both:
    a_renewal_by_another_server_is_unanswered_and_never_confirmed
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
