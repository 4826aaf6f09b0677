//! Waits in the server that hold no snapshot for long, and a writer's turn between their pieces.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Backend, Claim, Mode, Queue, Signal};
use dlock_testkit::holds::{claim_on, stand, take};
use dlock_testkit::wait_until;

use crate::kit::{Database, TTL, key};
use crate::{named_kit, row_kit};

row_cases! {
    an_index_that_a_holder_makes_does_not_wait_for_those_that_wait_for_its_named_lock
    an_index_that_a_holder_makes_does_not_wait_for_those_that_wait_for_its_row_lock
    readers_of_a_named_lock_pass_no_writer_that_waits_for_long
    readers_of_a_row_lock_pass_no_writer_that_waits_for_long
    a_row_lock_that_was_waited_for_leaves_no_turn_behind
}

async fn named(database: &Database) -> Arc<dyn Backend> {
    Arc::new(named_kit::open(database).await)
}

async fn rows(database: &Database) -> Arc<dyn Backend> {
    Arc::new(row_kit::open(&database.url()).await.unwrap())
}

fn claim_as(database: &Database, mode: Mode) -> Arc<Claim> {
    claim_on(&key(database, "a"), TTL, |claim| claim.mode = mode)
}

/// How many sessions wait for an advisory lock or a row.
async fn waiting(database: &Database) -> usize {
    let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    database.lines(sql).await.len()
}

async fn advisory_locks(database: &Database) -> usize {
    let sql = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' \
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    database.lines(sql).await.len()
}

async fn an_index_that_a_holder_makes_does_not_wait_for_those_that_wait_for_its_named_lock(database: Database) {
    let stores = [named(&database).await, named(&database).await, named(&database).await];
    makes_an_index(&database, stores).await;
}

async fn an_index_that_a_holder_makes_does_not_wait_for_those_that_wait_for_its_row_lock(database: Database) {
    let stores = [rows(&database).await, rows(&database).await, rows(&database).await];
    makes_an_index(&database, stores).await;
}

async fn makes_an_index(database: &Database, [one, two, three]: [Arc<dyn Backend>; 3]) {
    let hold = take(&*one, &claim_as(database, Mode::Exclusive)).await;
    let waits = [
        stand(&*two, &claim_as(database, Mode::Exclusive)).await,
        stand(&*three, &claim_as(database, Mode::Exclusive)).await,
    ];
    let waits = waits.map(|wake| tokio::spawn(wake.signal.unwrap()));
    wait_until("both wait in the server", async || waiting(database).await == 2).await.unwrap();
    database.change("CREATE TABLE goods AS SELECT generate_series(1, 100) AS id").await;
    let index = database.change("CREATE INDEX CONCURRENTLY goods_id ON goods (id)");
    tokio::time::timeout(Duration::from_secs(30), index).await.expect("it waits for the snapshot of a waiter");
    one.release(&hold).await.unwrap();
    let [mut two_waits, mut three_waits] = waits;
    let (granted, other, left) = tokio::select! {
        granted = &mut two_waits => (granted, &two, three_waits),
        granted = &mut three_waits => (granted, &three, two_waits),
    };
    let Signal::Granted(hold) = granted.unwrap().unwrap() else { panic!("no lock") };
    left.abort();
    other.release(&hold).await.unwrap();
}

async fn readers_of_a_named_lock_pass_no_writer_that_waits_for_long(database: Database) {
    let stores = [named(&database).await, named(&database).await, named(&database).await];
    passes_no_writer(&database, stores).await;
}

async fn readers_of_a_row_lock_pass_no_writer_that_waits_for_long(database: Database) {
    let stores = [rows(&database).await, rows(&database).await, rows(&database).await];
    passes_no_writer(&database, stores).await;
}

/// The writer's place must outlive several pieces of its wait.
async fn passes_no_writer(database: &Database, [one, two, three]: [Arc<dyn Backend>; 3]) {
    let reader = take(&*one, &claim_as(database, Mode::Read)).await;
    let writes = tokio::spawn(stand(&*two, &claim_as(database, Mode::Write)).await.signal.unwrap());
    wait_until("the writer waits", async || waiting(database).await == 1).await.unwrap();
    let reads = tokio::spawn(stand(&*three, &claim_as(database, Mode::Read)).await.signal.unwrap());
    // The passing of two pieces is what is tested.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!reads.is_finished(), "a reader that waits has passed the writer");
    let late = three.try_acquire(&claim_as(database, Mode::Read), Queue::Leave).await.unwrap();
    assert!(matches!(late, dlock_contract::Attempt::Contended(_)), "a reader has passed the writer");
    one.release(&reader).await.unwrap();
    let Signal::Granted(written) = writes.await.unwrap().unwrap() else { panic!("no lock") };
    assert!(!reads.is_finished(), "a reader beside a writer");
    two.release(&written).await.unwrap();
    let Signal::Granted(read) = reads.await.unwrap().unwrap() else { panic!("no lock") };
    three.release(&read).await.unwrap();
}

async fn a_row_lock_that_was_waited_for_leaves_no_turn_behind(database: Database) {
    let (one, two) = (rows(&database).await, rows(&database).await);
    let clock = dlock::Clock::system();
    let advisory = async || advisory_locks(&database).await;
    let hold = take(&*one, &claim_as(&database, Mode::Exclusive)).await;
    assert_eq!(advisory().await, 0);
    // Longer than a piece, and in vain.
    let until = clock.now().after(Duration::from_secs(3));
    let asked = two.try_acquire(&claim_as(&database, Mode::Exclusive), Queue::until(until)).await.unwrap();
    let dlock_contract::Attempt::Contended(wake) = asked else { panic!("two holders") };
    assert!(matches!(wake.signal.unwrap().await.unwrap(), Signal::Ask));
    wait_until("the turn is free", async || advisory().await == 0).await.unwrap();
    let waits = tokio::spawn(stand(&*two, &claim_as(&database, Mode::Exclusive)).await.signal.unwrap());
    wait_until("it waits for the row", async || waiting(&database).await == 1).await.unwrap();
    one.release(&hold).await.unwrap();
    let Signal::Granted(hold) = waits.await.unwrap().unwrap() else { panic!("no lock") };
    assert_eq!(advisory().await, 0, "a holder has the turn");
    two.release(&hold).await.unwrap();
}
