//! Locks in transactions of the caller's own.

use std::time::Duration;

use dlock::ErrorKind;
use dlock_contract::{Attempt, Backend, Queue, Released};
use dlock_postgres::{lock_in, try_lock_in};
use dlock_testkit::holds::take;
use dlock_testkit::servers::{PgBouncer, Postgres};
use sqlx::{Connection, PgConnection};

use crate::kit::{Database, TTL, key, start};
use crate::named_kit::open;

row_cases! {
    a_lock_in_a_transaction_ends_with_it
    a_lock_in_a_transaction_and_a_named_lock_exclude_each_other
    a_limit_of_the_transaction_ends_the_wait
    a_deadlock_of_two_transactions_can_be_repeated
    only_read_committed_sees_what_the_holder_before_has_committed
    the_facade_locks_in_the_default_namespace
}

async fn a_lock_in_a_transaction_ends_with_it(database: Database) {
    let (mut one, mut other) = (database.connect().await, database.connect().await);
    let (a, b) = (key(&database, "a"), key(&database, "b"));
    for commits in [true, false] {
        let mut first = one.begin().await.unwrap();
        lock_in(&mut first, &a).await.unwrap();
        lock_in(&mut first, &a).await.unwrap();
        let mut second = other.begin().await.unwrap();
        assert!(!try_lock_in(&mut second, &a).await.unwrap(), "two transactions have one lock");
        assert!(try_lock_in(&mut second, &b).await.unwrap(), "another key is another lock");
        if commits {
            first.commit().await.unwrap()
        } else {
            first.rollback().await.unwrap()
        }
        lock_in(&mut second, &a).await.unwrap();
        second.commit().await.unwrap();
    }
    // The connection ends, and the transaction with it.
    let mut first = one.begin().await.unwrap();
    lock_in(&mut first, &a).await.unwrap();
    std::mem::forget(first);
    drop(one);
    let mut second = other.begin().await.unwrap();
    lock_in(&mut second, &a).await.unwrap();
}

async fn a_lock_in_a_transaction_and_a_named_lock_exclude_each_other(database: Database) {
    let store = open(&database).await;
    let claim = database.claim("a", TTL);
    let mut conn = database.connect().await;
    let mut transaction = conn.begin().await.unwrap();
    lock_in(&mut transaction, &claim.key).await.unwrap();
    let refused = store.try_acquire(&claim, Queue::Leave).await.unwrap();
    assert!(matches!(refused, Attempt::Contended(_)), "{refused:?}");
    transaction.commit().await.unwrap();
    let hold = take(&store, &claim).await;
    let mut transaction = conn.begin().await.unwrap();
    assert!(!try_lock_in(&mut transaction, &claim.key).await.unwrap());
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    assert!(try_lock_in(&mut transaction, &claim.key).await.unwrap());
}

async fn a_limit_of_the_transaction_ends_the_wait(database: Database) {
    let (mut one, mut other) = (database.connect().await, database.connect().await);
    let a = key(&database, "a");
    let mut first = one.begin().await.unwrap();
    lock_in(&mut first, &a).await.unwrap();
    for limit in ["lock_timeout", "statement_timeout"] {
        let mut second = other.begin().await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("SET LOCAL {limit} = '50ms'"))).execute(&mut *second).await.unwrap();
        let error = lock_in(&mut second, &a).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::WaitTimeout, "{limit}: {error}");
        assert!(error.to_string().contains(a.as_str()), "{error}");
        second.rollback().await.unwrap();
    }
}

async fn a_deadlock_of_two_transactions_can_be_repeated(database: Database) {
    let (mut one, mut other) = (database.connect().await, database.connect().await);
    let (a, b) = (key(&database, "a"), key(&database, "b"));
    let (mut first, mut second) = (one.begin().await.unwrap(), other.begin().await.unwrap());
    lock_in(&mut first, &a).await.unwrap();
    lock_in(&mut second, &b).await.unwrap();
    let crossed = async {
        let error = lock_in(&mut first, &b).await.err();
        first.rollback().await.unwrap();
        error
    };
    let back = async {
        let error = lock_in(&mut second, &a).await.err();
        second.rollback().await.unwrap();
        error
    };
    let errors: Vec<_> = <[_; 2]>::from(futures::join!(crossed, back)).into_iter().flatten().collect();
    let [error] = &errors[..] else { panic!("one of the two is ended: {errors:?}") };
    assert!(*error.kind() == ErrorKind::Outage && error.is_retryable(), "{error}");
    assert!(error.to_string().contains("one order"), "{error}");
}

async fn only_read_committed_sees_what_the_holder_before_has_committed(database: Database) {
    let (mut one, mut other) = (database.connect().await, database.connect().await);
    let a = key(&database, "a");
    database.change("CREATE TABLE data (id BIGINT)").await;
    for (level, seen) in [("READ COMMITTED", 1), ("REPEATABLE READ", 0), ("SERIALIZABLE", 0)] {
        database.change("DELETE FROM data").await;
        let mut first = one.begin().await.unwrap();
        lock_in(&mut first, &a).await.unwrap();
        let mut second = other.begin().await.unwrap();
        let set = sqlx::AssertSqlSafe(format!("SET TRANSACTION ISOLATION LEVEL {level}"));
        sqlx::raw_sql(set).execute(&mut *second).await.unwrap();
        let commits = async {
            let waits =
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'";
            let is_waiting = async || !database.lines(waits).await.is_empty();
            dlock_testkit::wait_until("the second transaction waits", is_waiting).await.unwrap();
            sqlx::raw_sql("INSERT INTO data VALUES (1)").execute(&mut *first).await.unwrap();
            first.commit().await.unwrap();
        };
        let (locked, ()) = tokio::join!(lock_in(&mut second, &a), commits);
        locked.unwrap();
        let (count,): (i64,) = sqlx::query_as("SELECT count(*) FROM data").fetch_one(&mut *second).await.unwrap();
        assert_eq!(count, seen, "{level}");
        second.rollback().await.unwrap();
    }
}

async fn the_facade_locks_in_the_default_namespace(database: Database) {
    let (mut one, mut other) = (database.connect().await, database.connect().await);
    let key = || dlock::Key::text("stock:").value(&42);
    let mut first = one.begin().await.unwrap();
    dlock::postgres::lock_in(&mut first, key()).await.unwrap();
    let mut second = other.begin().await.unwrap();
    assert!(!dlock::postgres::try_lock_in(&mut second, key()).await.unwrap());
    let named = dlock::LockKey::new(&dlock::Registry::global().defaults().namespace, key()).unwrap();
    assert!(!try_lock_in(&mut second, &named).await.unwrap());
    assert!(dlock::postgres::try_lock_in(&mut second, "another").await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_in_a_transaction_holds_behind_a_pooler() {
    let server = start(Postgres::default()).await;
    let bouncer = start(PgBouncer::before(&server)).await;
    let mut conns = Vec::new();
    for _ in 0..2 {
        conns.push(PgConnection::connect(&bouncer.url()).await.unwrap());
    }
    let [one, other] = &mut conns[..] else { unreachable!() };
    let a = dlock::LockKey::new("shop", dlock::Key::text("a")).unwrap();
    for _ in 0..3 {
        let mut first = one.begin().await.unwrap();
        lock_in(&mut first, &a).await.unwrap();
        let mut second = other.begin().await.unwrap();
        assert!(!try_lock_in(&mut second, &a).await.unwrap(), "two transactions have one lock");
        first.commit().await.unwrap();
        tokio::time::timeout(Duration::from_secs(20), lock_in(&mut second, &a)).await.unwrap().unwrap();
        second.rollback().await.unwrap();
    }
}
