//! A body that works inside the lock's own transaction: its work stays if the call succeeds, and only then.

use std::time::Instant;

use dlock_testkit::child::Child;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

use crate::arena::{Arena, PATIENCE, job};
use crate::holder::take_one;

const STOCK: i64 = 10;

pub(super) fn kill_9_in_the_body_undoes_its_work(arena: &Arena) {
    arena.run(async {
        let stock = Stock::create(arena).await;
        let (mut seller, _) = seller(arena);
        let killed = Instant::now();
        seller.kill9().unwrap();
        sell_here(arena, &stock, killed).await;
    });
}

pub(super) fn a_session_that_is_ended_in_the_body_undoes_its_work_and_fails_the_call(arena: &Arena) {
    arena.run(async {
        let stock = Stock::create(arena).await;
        let (mut seller, session) = seller(arena);
        let killed = Instant::now();
        stock.end(session).await;
        assert_eq!(seller.wait_line("ended: ", PATIENCE).unwrap(), "lost");
        sell_here(arena, &stock, killed).await;
    });
}

/// A process that has taken one thing, and stays in its body; and its session.
fn seller(arena: &Arena) -> (Child, i64) {
    let mut seller = arena.child("sell in the transaction");
    let session = seller.wait_line("worked ", PATIENCE).unwrap().parse().unwrap();
    (seller, session)
}

/// The next holder finds the whole stock, and its own work stays.
async fn sell_here(arena: &Arena, stock: &Stock, since: Instant) {
    let next = arena.near().await;
    let sold = job(&next).run_fallible(async |held| {
        arena.assert_in_time(since);
        assert_eq!(stock.remaining().await, STOCK);
        take_one(&held, &stock.url).await?;
        assert_eq!(stock.remaining().await, STOCK, "the work is visible before the commit");
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    });
    sold.await.unwrap();
    assert_eq!(stock.remaining().await, STOCK - 1);
    arena.assert_nothing_left().await;
}

/// The user's own table.
struct Stock {
    url: String,
}

impl Stock {
    async fn create(arena: &Arena) -> Self {
        let stock = Self { url: arena.resource.url.clone() };
        stock.run("CREATE TABLE stock (remaining BIGINT NOT NULL)").await;
        stock.run(&format!("INSERT INTO stock VALUES ({STOCK})")).await;
        stock
    }

    async fn remaining(&self) -> i64 {
        const SELECT: &str = "SELECT remaining FROM stock";
        if self.is_postgres() {
            sqlx::query_scalar(SELECT).fetch_one(&mut PgConnection::connect(&self.url).await.unwrap()).await.unwrap()
        } else {
            sqlx::query_scalar(SELECT).fetch_one(&mut MySqlConnection::connect(&self.url).await.unwrap()).await.unwrap()
        }
    }

    /// As an operator ends a session.
    async fn end(&self, session: i64) {
        let end = if self.is_postgres() {
            format!("SELECT pg_terminate_backend({session})")
        } else {
            format!("KILL {session}")
        };
        self.run(&end).await;
    }

    async fn run(&self, sql: &str) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        if self.is_postgres() {
            sql.execute(&mut PgConnection::connect(&self.url).await.unwrap()).await.unwrap();
        } else {
            sql.execute(&mut MySqlConnection::connect(&self.url).await.unwrap()).await.unwrap();
        }
    }

    fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }
}
