//! The wait queues as the server sees them, and their parts that only PostgreSQL has.

use std::process::Command;
use std::time::Duration;

use dlock::Clock;
use dlock_contract::{Attempt, Backend, Queue, Released, Signal};
use dlock_testkit::holds::{take, wait};
use dlock_testkit::wait_until;

use crate::cases::wait_queue::{granted, hold_with_turn, join_queue};
use crate::kit::{Database, TTL, run};

impl Database {
    /// The sessions that have a turn.
    pub(crate) async fn turn_sessions(&self) -> Vec<String> {
        self.lines(&locks("granted")).await
    }

    /// The sessions that wait for a turn.
    pub(crate) async fn waiting_sessions(&self) -> Vec<String> {
        self.lines(&locks("NOT granted")).await
    }

    pub(crate) async fn end_session(&self, session: &str) {
        self.lines(&format!("SELECT pg_terminate_backend({session})")).await;
        wait_until("the session ends", async || !self.sessions().await.iter().any(|one| one == session)).await.unwrap();
    }

    /// Another database of the same server.
    pub(crate) async fn beside(&self) -> Self {
        Self::create(&self.url(), "beside").await
    }
}

fn locks(which: &str) -> String {
    format!(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND {which} \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_of_a_wait_queue_is_frozen() {
    run("queue_name", |database| {
        Box::pin(async move {
            let store = database.store().await;
            let hold = hold_with_turn(&database, &store, "a").await;
            let name = "sha256('dlock room'::bytea || '\\x00'::bytea || 'public'::bytea || '\\x00'::bytea || k::bytea)";
            let number = format!("('x' || encode(substr({name}, 1, 8), 'hex'))::bit(64)::bigint");
            let ours = format!(
                "SELECT count(*) FROM dlock_locks, pg_locks WHERE locktype = 'advisory' AND objsubid = 1 \
                 AND (classid::bigint << 32 | objid::bigint) = {number}"
            );
            assert_eq!(database.number(&ours).await, 1);
            store.release(&hold).await.unwrap();
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_an_account_that_may_not_join_wait_queues_poll() {
    run("queue_rights", |database| {
        Box::pin(async move {
            let one = database.store().await;
            let account = database.account_with(&[
                ("SELECT, INSERT, UPDATE, DELETE", "dlock_locks"),
                ("SELECT, INSERT, UPDATE, DELETE", "dlock_breaks"),
                ("SELECT, INSERT, UPDATE, DELETE", "dlock_meta"),
            ]);
            let other = crate::kit::try_open(&account.await).await.unwrap();
            for function in ["pg_advisory_lock(bigint)", "pg_try_advisory_lock(bigint)"] {
                database.change(&format!("REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")).await;
            }
            for _ in 0..3 {
                let hold = take(&one, &database.claim("a", TTL)).await;
                let waits = async { wait(&other, &database.claim("a", TTL), TTL * 2).await };
                let (next, _) = futures::join!(waits, async {
                    tokio::task::yield_now().await;
                    one.release(&hold).await.unwrap()
                });
                other.release(&next).await.unwrap();
            }
            assert!(database.turn_sessions().await.is_empty());
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_waited_for_longer_than_the_statements_of_a_row_may() {
    run("queue_limits", |database| {
        Box::pin(async move {
            let (one, other) = (database.store().await, database.store().await);
            let hold = hold_with_turn(&database, &one, "a").await;
            let (_, wake) = join_queue(&database, &other, "a").await;
            let place = database.waiting_sessions().await;
            // The limits of the row's statements are 1 s and 5 s. Nothing happens meanwhile that could be waited for.
            tokio::time::sleep(Duration::from_secs(6)).await;
            wait_until("the waiter still waits", async || database.waiting_sessions().await == place).await.unwrap();
            one.release(&hold).await.unwrap();
            other.release(&granted(wake).await).await.unwrap();
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_a_holder_makes_concurrently_does_not_wait_for_waiters_of_the_lock() {
    run("queue_index", |database| {
        Box::pin(async move {
            let (one, other) = (database.store().await, database.store().await);
            let hold = hold_with_turn(&database, &one, "migration").await;
            let (_, wake) = join_queue(&database, &other, "migration").await;
            database.change("CREATE TABLE goods AS SELECT generate_series(1, 100) AS id").await;
            let index = database.change("CREATE INDEX CONCURRENTLY goods_id ON goods (id)");
            tokio::time::timeout(TTL / 2, index).await.expect("it waits for the snapshot of a waiter");
            wait_until("the waiter still waits", async || database.waiting_sessions().await.len() == 1).await.unwrap();
            assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
            other.release(&granted(wake).await).await.unwrap();
        })
    })
    .await;
}

/// A process of the server that stands still, until this is dropped.
struct Stopped(String);

impl Stopped {
    fn now(session: &str) -> Self {
        signal("-STOP", session);
        Self(session.to_owned())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([name, process]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_is_granted_in_the_moment_in_which_the_wait_ends_is_given_back() {
    run("queue_late", |database| {
        Box::pin(async move {
            // A session that keeps the turn is not closed within this test.
            let other = database.store_with("idle_timeout=10m").await;
            let (one, clock) = (database.store().await, Clock::system());
            let hold = hold_with_turn(&database, &one, "a").await;
            let until = clock.now().after(Duration::from_secs(4));
            let answer = other.try_acquire(&database.claim("a", TTL), Queue::until(until)).await.unwrap();
            let Attempt::Contended(wake) = answer else { panic!("{answer:?}") };
            wait_until("it is in the queue", async || database.waiting_sessions().await.len() == 1).await.unwrap();
            let session = database.waiting_sessions().await.remove(0);
            // The server grants the turn to this session, which hears of the end of its wait first.
            let stopped = Stopped::now(&session);
            assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
            wait_until("the turn is granted", async || database.turn_sessions().await == [session.clone()])
                .await
                .unwrap();
            clock.sleep_until(until.after(Duration::from_millis(100))).await;
            drop(stopped);
            let news = wake.signal.expect("a waiter without news").await.unwrap();
            assert!(matches!(news, Signal::Ask), "{news:?}");
            wait_until("the queue is left", async || database.turn_sessions().await.is_empty()).await.unwrap();
            assert!(database.held().await.is_empty());
        })
    })
    .await;
}
