//! A server that was a standby and was promoted: it has the rows, and another timeline.

use dlock::{Clock, ErrorKind, Key, LockKey};
use dlock_contract::{Backend, BreakRecord, Hold, HoldId, Inspect, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, take};
use dlock_testkit::servers::Instance;
use dlock_testkit::wait_until;

use crate::cases::support::attempt;
use crate::kit::{Database, TTL};
use crate::row_kit;

cases_with_own_server! {
    a_renewal_by_a_promoted_server_is_unanswered_and_never_confirmed
}

async fn a_renewal_by_a_promoted_server_is_unanswered_and_never_confirmed(server: Instance, database: Database) {
    let store = database.store().await;
    let before = take(&store, &database.claim("a", TTL)).await;
    assert!(matches!(confirm(&store, &before).await, Standing::Renewed(_)));
    let rows = row_kit::open(&database.url()).await.unwrap();
    let row = take(&rows, &claim_on(&LockKey::new("rows", Key::text("a")).unwrap(), TTL, |_| ())).await;
    tokio::task::block_in_place(|| {
        server.kill9().unwrap();
        std::fs::write(server.folder().join("data").join("standby.signal"), "").unwrap();
        server.restart().unwrap();
    });
    let after = database.claim("b", TTL);
    let error = attempt(&store, &after).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotPrimary | ErrorKind::Outage), "{error}");
    // Locks of a session too are the standby's own, and exclude nobody on the primary.
    let error = dlock_postgres::named::open(&database.url(), &Clock::system()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotPrimary, "{error}");
    let error = row_kit::open(&database.url()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotPrimary, "{error}");
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
    nobody_is_ended_for_a_hold_of_the_server_before(&database, &rows, &row).await;
}

/// The record of a row lock has come over, with the number of its session, which is somebody else's here.
async fn nobody_is_ended_for_a_hold_of_the_server_before(database: &Database, rows: &row_kit::Store, row: &Hold) {
    let mut somebody = database.connect().await;
    let number: (i64,) = sqlx::query_as(row_kit::SESSION).fetch_one(&mut somebody).await.unwrap();
    database.change(&format!("UPDATE dlock_rows SET session = {}", number.0)).await;
    let (id, record) = (HoldId::of(&row.claim.owner), BreakRecord::new("alice", 17, "hangs"));
    assert!(!rows.break_hold(&row.claim.key, id, &record).await.unwrap());
    rows.release(row).await.unwrap_err();
    sqlx::raw_sql("SELECT 1").execute(&mut somebody).await.expect("somebody else's session was ended");
}
