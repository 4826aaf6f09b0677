//! A deadlock that really happens: somebody's transaction has one of two rows, and a renewal of both has the other one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dlock_contract::{Backend, Released, Standing};
use dlock_testkit::holds::{confirm, take};
use dlock_testkit::wait_until;

use super::kit::{Database, HEAVY, TTL, patient};

row_cases! {
    a_renewal_that_the_server_undoes_because_of_a_deadlock_is_repeated_and_loses_nothing
}

async fn a_renewal_that_the_server_undoes_because_of_a_deadlock_is_repeated_and_loses_nothing(database: Database) {
    // The server undoes the transaction that has changed less.
    database.change("CREATE TABLE weight (n INT)").await;
    database.change(HEAVY).await;
    let patient = patient(&database).await;
    let store = Arc::new(database.store().await);
    let first = take(&*store, &database.claim("a", TTL)).await;
    let last = take(&*store, &database.claim("b", TTL)).await;
    let names = [&first, &last].map(|hold| hold.claim.key.as_str().to_owned());
    let before = database.deadlocks().await;
    assert!(!store.ready().await.unwrap().to_string().contains("deadlocks"), "a count of zero is no news");

    let mut somebody = database.lock_row(&names[1]).await;
    for statement in [patient, "UPDATE weight SET n = n + 1"] {
        sqlx::raw_sql(statement).execute(&mut somebody).await.unwrap();
    }
    let holds = [Arc::new(first), Arc::new(last)];
    let crossed = Arc::new(AtomicBool::new(false));
    let renewing = tokio::spawn({
        let (store, [first, last], crossed) = (store.clone(), holds.clone(), crossed.clone());
        async move {
            loop {
                let answers = store.renew(&[&first, &last]).await;
                // A server waits for a row for a second at most. On a busy machine that can end before the crossing.
                if answers.iter().all(Result::is_ok) || crossed.load(Relaxed) {
                    break answers;
                }
            }
        }
    });
    wait_until("the renewal waits for the second row", async || database.waits_for_a_row().await).await.unwrap();
    crossed.store(true, Relaxed);
    let crossing = format!("SELECT 1 FROM dlock_locks WHERE k = '{}' FOR UPDATE", names[0]);
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(crossing)).fetch_all(&mut somebody).await;
    assert_eq!(rows.expect("the server undid the other side, so nothing is proven").len(), 1);
    sqlx::raw_sql("ROLLBACK").execute(&mut somebody).await.unwrap();

    for answer in renewing.await.unwrap() {
        assert!(matches!(answer, Ok(Standing::Renewed(_))), "{answer:?}");
    }
    wait_until("the server counts the deadlock", async || database.deadlocks().await > before).await.unwrap();
    let health = store.ready().await.unwrap();
    let counted = health.counts.iter().find(|(what, _)| what.starts_with("deadlocks")).unwrap();
    // On a busy machine the repeated statement may meet the other side's transaction once more.
    assert!(counted.1 >= 1, "{health}");
    assert!(health.to_string().contains(&format!("deadlocks and serialization failures: {}", counted.1)), "{health}");
    for hold in &holds {
        assert!(matches!(confirm(&*store, hold).await, Standing::Renewed(_)));
        assert_eq!(store.release(hold).await.unwrap(), Released::Released);
    }
}
