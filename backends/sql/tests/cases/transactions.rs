//! A lock and a transaction: which of the two ends first. The wrong form is the one that `docs/recipes.md` warns of.

use dlock::{ErrorKind, Fence, Guard, Registry, fenced};
use sqlx::{Connection, Row};

use super::kit::{Client, Database, SET_REMAINING, TTL, key};

row_cases! {
    a_lock_that_ends_before_its_transaction_sells_one_thing_twice
    a_lock_around_the_transaction_sells_each_thing_once
    a_stale_holder_writes_nothing_by_the_line_in_its_own_update
}

async fn shop(database: &Database) -> Registry {
    database.change("CREATE TABLE stock (id BIGINT PRIMARY KEY, remaining BIGINT NOT NULL)").await;
    database.change("INSERT INTO stock VALUES (7, 5)").await;
    let registry = Registry::new();
    registry.install("sql", database.store().await).unwrap();
    registry
}

async fn lock(registry: &Registry) -> Guard {
    registry.lock("stock").ttl(TTL).acquire().await.unwrap()
}

async fn remaining(conn: &mut Client) -> i64 {
    sqlx::query("SELECT remaining FROM stock WHERE id = 7").fetch_one(conn).await.unwrap().get(0)
}

async fn set_remaining(conn: &mut Client, remaining: i64) {
    let sql = sqlx::AssertSqlSafe(format!("UPDATE stock SET {SET_REMAINING} WHERE id = 7"));
    assert_eq!(sqlx::query(sql).bind(remaining).execute(conn).await.unwrap().rows_affected(), 1);
}

/// Both sellers have the lock while they read and write, one after the other.
async fn a_lock_that_ends_before_its_transaction_sells_one_thing_twice(database: Database) {
    let registry = shop(&database).await;
    let (mut one, mut other) = (database.connect().await, database.connect().await);
    let mut first = one.begin().await.unwrap();
    let guard = lock(&registry).await;
    let left = remaining(&mut first).await;
    set_remaining(&mut first, left - 1).await;
    guard.release().await.unwrap();
    // The next holder comes in before the commit.
    let mut second = other.begin().await.unwrap();
    let guard = lock(&registry).await;
    let left = remaining(&mut second).await;
    first.commit().await.unwrap();
    set_remaining(&mut second, left - 1).await;
    guard.release().await.unwrap();
    second.commit().await.unwrap();
    assert_eq!(remaining(&mut one).await, 4, "two were sold, and one was counted: this is what the page warns of");
}

async fn a_lock_around_the_transaction_sells_each_thing_once(database: Database) {
    let registry = shop(&database).await;
    let mut sellers = Vec::new();
    for _ in 0..2 {
        let (registry, mut conn) = (registry.clone(), database.connect().await);
        sellers.push(tokio::spawn(async move {
            let guard = registry.lock("stock").ttl(TTL).wait(dlock::Wait::UpTo(TTL)).acquire().await.unwrap();
            let mut transaction = conn.begin().await.unwrap();
            let left = remaining(&mut transaction).await;
            tokio::task::yield_now().await;
            set_remaining(&mut transaction, left - 1).await;
            transaction.commit().await.unwrap();
            guard.release().await.unwrap();
        }));
    }
    for seller in sellers {
        seller.await.unwrap();
    }
    assert_eq!(remaining(&mut database.connect().await).await, 3);
}

async fn a_stale_holder_writes_nothing_by_the_line_in_its_own_update(database: Database) {
    let place = |number| if SET_REMAINING.contains('$') { format!("${number}") } else { "?".to_owned() };
    database
        .change("CREATE TABLE stock (id BIGINT PRIMARY KEY, remaining BIGINT, fence BIGINT NOT NULL DEFAULT 0)")
        .await;
    database.change("INSERT INTO stock (id, remaining) VALUES (7, 5)").await;
    let mut conn = database.connect().await;
    let mut write = async |token: u64, remaining: i64| {
        let fence = Fence::from_parts(key(&database, "stock"), Some(token)).unwrap();
        let [change, condition] = [place(2), place(3)];
        let (set, check) =
            (fenced::line(&fence, "fence", &change).unwrap(), fenced::line(&fence, "fence", &condition).unwrap());
        let sql = format!("UPDATE stock SET {SET_REMAINING}, {} WHERE id = 7 AND {}", set.set(), check.condition());
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(remaining).bind(set.token()).bind(check.token());
        check.written(query.execute(&mut conn).await.unwrap().rows_affected())
    };
    write(5, 4).await.unwrap();
    write(5, 3).await.unwrap();
    write(9, 2).await.unwrap();
    let error = write(8, 100).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceStale { seen: 9 }), "{error}");
    assert_eq!(database.lines("SELECT CONCAT(remaining, ' ', fence) FROM stock").await, ["2 9"]);
}
