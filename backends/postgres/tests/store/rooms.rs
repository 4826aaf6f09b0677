//! The waiting rooms as the server sees them, and what is PostgreSQL's own in them.

use std::process::Command;
use std::time::Duration;

use dlock::Clock;
use dlock_contract::{Attempt, Backend, Queue, Released, Signal};
use dlock_testkit::holds::{take, wait};
use dlock_testkit::wait_until;

use crate::cases::room::{granted, out_of_the_room, stand_in_line};
use crate::kit::{Database, TTL, run};

impl Database {
    /// The sessions that are in a room.
    pub(crate) async fn in_rooms(&self) -> Vec<String> {
        self.lines(&locks("granted")).await
    }

    /// The sessions that wait for a room.
    pub(crate) async fn standing(&self) -> Vec<String> {
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
async fn the_name_of_a_room_is_frozen() {
    run("room_name", |database| {
        Box::pin(async move {
            let store = database.store().await;
            let hold = out_of_the_room(&database, &store, "a").await;
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
async fn waiters_of_an_account_that_may_not_enter_rooms_poll() {
    run("room_rights", |database| {
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
            assert!(database.in_rooms().await.is_empty());
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_waits_for_longer_than_the_statements_of_a_row_may() {
    run("room_limits", |database| {
        Box::pin(async move {
            let (one, other) = (database.store().await, database.store().await);
            let hold = out_of_the_room(&database, &one, "a").await;
            let (_, wake) = stand_in_line(&database, &other, "a").await;
            let place = database.standing().await;
            // The limits of the row's statements are 1 s and 5 s. Nothing happens meanwhile that could be waited for.
            tokio::time::sleep(Duration::from_secs(6)).await;
            wait_until("the waiter still stands", async || database.standing().await == place).await.unwrap();
            one.release(&hold).await.unwrap();
            other.release(&granted(wake).await).await.unwrap();
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_a_holder_makes_concurrently_does_not_wait_for_waiters_of_the_lock() {
    run("room_index", |database| {
        Box::pin(async move {
            let (one, other) = (database.store().await, database.store().await);
            let hold = out_of_the_room(&database, &one, "migration").await;
            let (_, wake) = stand_in_line(&database, &other, "migration").await;
            database.change("CREATE TABLE goods AS SELECT generate_series(1, 100) AS id").await;
            let index = database.change("CREATE INDEX CONCURRENTLY goods_id ON goods (id)");
            tokio::time::timeout(TTL / 2, index).await.expect("it waits for the snapshot of a waiter");
            wait_until("the waiter still stands", async || database.standing().await.len() == 1).await.unwrap();
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
async fn a_room_that_is_granted_in_the_moment_in_which_the_wait_ends_is_left() {
    run("room_late", |database| {
        Box::pin(async move {
            // A session that stays in the room is not closed within this test.
            let other = database.store_with("idle_timeout=10m").await;
            let (one, clock) = (database.store().await, Clock::system());
            let hold = out_of_the_room(&database, &one, "a").await;
            let until = clock.now().after(Duration::from_secs(4));
            let answer = other.try_acquire(&database.claim("a", TTL), Queue::until(until)).await.unwrap();
            let Attempt::Contended(wake) = answer else { panic!("{answer:?}") };
            wait_until("it stands in the line", async || database.standing().await.len() == 1).await.unwrap();
            let session = database.standing().await.remove(0);
            // The server grants the room to this session, which hears of the end of its wait first.
            let stopped = Stopped::now(&session);
            assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
            wait_until("the room is granted", async || database.in_rooms().await == [session.clone()]).await.unwrap();
            clock.sleep_until(until.after(Duration::from_millis(100))).await;
            drop(stopped);
            let news = wake.signal.expect("a waiter without news").await.unwrap();
            assert!(matches!(news, Signal::Ask), "{news:?}");
            wait_until("the room is left", async || database.in_rooms().await.is_empty()).await.unwrap();
            assert!(database.held().await.is_empty());
        })
    })
    .await;
}
