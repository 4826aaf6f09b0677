//! Functions that take no lock and run again after a conflict: real tasks and threads on one versioned value.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once};

use async_trait::async_trait;
use dlock::backends::memory::Memory;
use dlock::{Conflict, Error, ErrorKind, distributed_lock, optimistic};
use tracing::instrument;

#[derive(Debug)]
enum Failure {
    Stale,
    Other,
    GaveUp(Error),
}

impl Conflict for Failure {
    fn is_conflict(&self) -> bool {
        matches!(self, Failure::Stale)
    }
    fn into_source(self) -> Option<Box<dyn std::error::Error + Send + Sync>> {
        Some("another writer was faster".into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::GaveUp(error)
    }
}

/// One store for the tests that also lock.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        dlock::install("memory", Memory::new()).expect("a free name");
        dlock::set_default("memory").expect("an installed name");
    });
}

/// A row with a `version` column.
#[derive(Default)]
struct Row {
    value: Mutex<(u64, u64)>,
    conflicts: AtomicU32,
}

impl Row {
    fn read(&self) -> (u64, u64) {
        *self.value.lock().expect("no panic")
    }

    fn write(&self, version: u64, value: u64) -> Result<(), Failure> {
        let mut row = self.value.lock().expect("no panic");
        if row.0 != version {
            self.conflicts.fetch_add(1, Ordering::SeqCst);
            return Err(Failure::Stale);
        }
        *row = (version + 1, value);
        Ok(())
    }
}

#[optimistic(retries = 1000, backoff = "1ms..5ms")]
async fn add(row: Arc<Row>, n: u64, name: String) -> Result<usize, Failure> {
    let (version, value) = row.read();
    tokio::task::yield_now().await;
    row.write(version, value + n)?;
    Ok(name.len())
}

impl Row {
    #[optimistic(retries = 1000, backoff = "1ms..5ms")]
    fn add_blocking(&self, n: u64) -> Result<u64, Failure> {
        let (version, value) = self.read();
        std::thread::yield_now();
        self.write(version, value + n)?;
        Ok(version)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_optimistic_update_is_lost_between_tasks() {
    let row = Arc::new(Row::default());
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let row = row.clone();
            tokio::spawn(async move {
                for _ in 0..25 {
                    add(row.clone(), 1, "abc".into()).await.expect("enough attempts");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends");
    }
    assert_eq!(row.read(), (200, 200));
    assert!(row.conflicts.load(Ordering::SeqCst) > 0, "the tasks have met");
}

#[test]
fn no_optimistic_update_is_lost_between_threads() {
    let row = Row::default();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    row.add_blocking(2).expect("enough attempts");
                }
            });
        }
    });
    assert_eq!(row.read(), (400, 800));
}

#[tokio::test]
async fn the_last_conflict_is_returned_with_the_number_of_attempts() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    #[optimistic(retries = 2, backoff = "1ms")]
    async fn unlucky() -> Result<(), Failure> {
        RUNS.fetch_add(1, Ordering::SeqCst);
        Err(Failure::Stale)
    }
    let Err(Failure::GaveUp(error)) = unlucky().await else { panic!("it gives up") };
    assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Conflict, 3));
    assert!(std::error::Error::source(&error).is_some_and(|source| source.to_string().contains("faster")));
    assert_eq!(RUNS.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn the_pauses_and_the_number_of_attempts_are_those_of_the_attribute() {
    #[optimistic(retries = 1, backoff = "1h..1h")]
    async fn patient() -> Result<(), Failure> {
        Err(Failure::Stale)
    }
    #[optimistic]
    async fn default() -> Result<(), Failure> {
        Err(Failure::Stale)
    }
    // Of random pauses of up to an hour hardly one is shorter than what the other function takes with all of its own.
    let end = tokio::select! {
        biased;
        _ = patient() => panic!("an hour has passed"),
        end = default() => end,
    };
    let Err(Failure::GaveUp(error)) = end else { panic!("it gives up") };
    assert_eq!(error.attempts(), 4);
}

#[test]
fn an_error_that_is_no_conflict_is_not_retried() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    #[optimistic]
    fn wrong(text: &str) -> Result<&str, Failure> {
        RUNS.fetch_add(1, Ordering::SeqCst);
        if text.is_empty() {
            return Err(Failure::Other);
        }
        Ok(text)
    }
    assert!(matches!(wrong(""), Err(Failure::Other)));
    assert!(matches!(wrong("a"), Ok("a")));
    assert_eq!(RUNS.load(Ordering::SeqCst), 2);
}

/// Under `#[async_trait]`, alone and with each of its neighbours above and below.
#[async_trait]
trait Stock {
    async fn alone(&self, n: u64) -> Result<u64, Failure>;
    async fn lock_below(&self, n: u64, name: &str) -> Result<u64, Failure>;
    async fn lock_above(&self, n: u64, name: &str) -> Result<u64, Failure>;
    async fn span_below(&self, n: u64) -> Result<u64, Failure>;
    async fn span_above(&self, n: u64) -> Result<u64, Failure>;

    #[optimistic(retries = 1000, backoff = "1ms..5ms")]
    async fn provided(&self, n: u64) -> Result<u64, Failure> {
        self.add_once(n).await
    }

    async fn add_once(&self, n: u64) -> Result<u64, Failure>;
}

#[async_trait]
impl Stock for Row {
    #[optimistic(retries = 1000, backoff = "1ms..5ms")]
    async fn alone(&self, n: u64) -> Result<u64, Failure> {
        self.add_once(n).await
    }

    #[optimistic(retries = 1000, backoff = "1ms..5ms")]
    #[distributed_lock(key = "stock:<name>")]
    async fn lock_below(&self, n: u64, name: &str) -> Result<u64, Failure> {
        self.add_once(n).await
    }

    #[distributed_lock(key = "stock:<name>")]
    #[optimistic(retries = 1000, backoff = "1ms..5ms")]
    async fn lock_above(&self, n: u64, name: &str) -> Result<u64, Failure> {
        self.add_once(n).await
    }

    #[optimistic(retries = 1000, backoff = "1ms..5ms")]
    #[instrument(skip(self))]
    async fn span_below(&self, n: u64) -> Result<u64, Failure> {
        self.add_once(n).await
    }

    #[instrument(skip(self))]
    #[optimistic(retries = 1000, backoff = "1ms..5ms")]
    async fn span_above(&self, n: u64) -> Result<u64, Failure> {
        self.add_once(n).await
    }

    async fn add_once(&self, n: u64) -> Result<u64, Failure> {
        let (version, value) = self.read();
        tokio::task::yield_now().await;
        self.write(version, value + n)?;
        Ok(version)
    }
}

/// Not under `#[async_trait]`: a trait's own async functions.
trait Native {
    async fn native(&self, n: u64) -> Result<u64, Failure>;
}

impl Native for Row {
    #[optimistic(retries = 1000, backoff = "1ms..5ms")]
    async fn native(&self, n: u64) -> Result<u64, Failure> {
        self.add_once(n).await
    }
}

#[tokio::test]
async fn an_optimistic_method_of_a_trait_runs_again() {
    install();
    let row = Row::default();
    for _ in 0..5 {
        // Each reads before any of them writes.
        let ends = tokio::join!(
            row.alone(1),
            row.lock_below(1, "a"),
            row.lock_above(1, "b"),
            row.span_below(1),
            row.span_above(1),
            row.provided(1),
            row.native(1)
        );
        let ends = [ends.0, ends.1, ends.2, ends.3, ends.4, ends.5, ends.6];
        assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    }
    assert_eq!(row.read(), (35, 35));
    assert!(row.conflicts.load(Ordering::SeqCst) >= 5, "they have met");
}

#[tokio::test]
async fn a_lock_above_optimistic_is_taken_by_each_attempt_and_one_below_once_for_all() {
    #[distributed_lock(key = "around:each", fence = token)]
    #[optimistic(retries = 2, backoff = "1ms")]
    async fn lock_above(tokens: &Mutex<Vec<u64>>) -> Result<(), Failure> {
        tokens.lock().expect("no panic").push(token.get());
        Err(Failure::Stale)
    }
    #[optimistic(retries = 2, backoff = "1ms")]
    #[distributed_lock(key = "around:all")]
    async fn lock_below(tokens: &Mutex<Vec<u64>>) -> Result<(), Failure> {
        let token = dlock::current().expect("a lock").fence().expect("a token");
        tokens.lock().expect("no panic").push(token.get());
        Err(Failure::Stale)
    }
    install();
    let (each, all) = (Mutex::default(), Mutex::default());
    assert!(matches!(lock_above(&each).await, Err(Failure::GaveUp(_))));
    assert!(matches!(lock_below(&all).await, Err(Failure::GaveUp(_))));
    let (each, all) = (each.into_inner().expect("no panic"), all.into_inner().expect("no panic"));
    assert!(matches!(each[..], [one, two, three] if one < two && two < three), "{each:?}");
    assert!(matches!(all[..], [one, two, three] if one == two && two == three), "{all:?}");
}

#[test]
fn the_future_of_an_optimistic_function_can_go_to_another_thread() {
    fn assert_send(_: impl Send) {}
    assert_send(add(Arc::default(), 1, String::new()));
}
