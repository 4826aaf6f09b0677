//! A server that was a standby and was promoted: it has the rows, and another timeline.

use dlock::ErrorKind;
use dlock_contract::{Backend, Released, Standing};
use dlock_testkit::holds::{confirm, take};
use dlock_testkit::servers::Instance;
use dlock_testkit::wait_until;

use crate::cases::support::attempt;
use crate::kit::{Database, TTL};

cases_with_own_server! {
    a_renewal_by_a_promoted_server_is_unanswered_and_never_confirmed
}

async fn a_renewal_by_a_promoted_server_is_unanswered_and_never_confirmed(server: Instance, database: Database) {
    let store = database.store().await;
    let before = take(&store, &database.claim("a", TTL)).await;
    assert!(matches!(confirm(&store, &before).await, Standing::Renewed(_)));
    tokio::task::block_in_place(|| {
        server.kill9().unwrap();
        std::fs::write(server.folder().join("data").join("standby.signal"), "").unwrap();
        server.restart().unwrap();
    });
    let after = database.claim("b", TTL);
    let error = attempt(&store, &after).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotPrimary | ErrorKind::Outage), "{error}");
    tokio::task::block_in_place(|| server.ask("SELECT pg_promote()")).unwrap();
    wait_until("the promoted server grants locks", async || {
        attempt(&store, &after).await.is_ok_and(|hold| hold.is_some())
    })
    .await
    .unwrap();
    let error = store.renew(&[&before]).await.remove(0).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Outage, "{error}");
    assert!(error.to_string().contains("another server"), "{error}");
    // An end of the hold is right wherever the row is.
    assert_eq!(store.release(&before).await.unwrap(), Released::Released);
}
