//! Functions that take no lock and run again after a conflict: real tasks and threads on one versioned value.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use dlock::{Conflict, Error, ErrorKind, optimistic};

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

/// What a row with a `version` column is.
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
async fn nothing_is_lost_between_tasks() {
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
fn nothing_is_lost_between_threads() {
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
async fn the_last_conflict_is_told_with_the_number_of_attempts() {
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

#[test]
fn other_errors_are_the_end() {
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

#[test]
fn the_future_can_go_to_another_thread() {
    fn assert_send(_: impl Send) {}
    assert_send(add(Arc::default(), 1, String::new()));
}
