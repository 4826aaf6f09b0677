//! A file, opened as several processes would, and the claims on it.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dlock::backends::sqlite::Sqlite;
use dlock::{Clock, ErrorKind, Mode, OncePer};
use dlock_contract::{Attempt, Backend, Claim, Hold, Queue, Released, Wake};
use dlock_testkit::holds::{claim, claim_in, claim_on, key};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) struct Store {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) clock: Clock,
}

impl Store {
    /// On a clock that stands still.
    pub(crate) fn new() -> Self {
        Self::with_clock(Clock::manual())
    }

    pub(crate) fn on_real_time() -> Self {
        Self::with_clock(Clock::system())
    }

    pub(crate) fn with_clock(clock: Clock) -> Self {
        Self { folder: tempfile::Builder::new().prefix("sq_").tempdir().unwrap(), clock }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    pub(crate) fn url(&self) -> String {
        url(&self.path())
    }

    /// Another backend value on the same file, as another process would have.
    pub(crate) async fn open(&self) -> Sqlite {
        Sqlite::open(&self.url(), &self.clock).await.unwrap()
    }

    pub(crate) async fn connect(&self) -> SqliteConnection {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(self.path()).create_if_missing(true);
        options.connect().await.unwrap()
    }

    /// Asks the file itself, over a connection of the test's own.
    pub(crate) async fn ask(&self, sql: &'static str) -> i64 {
        let mut conn = self.connect().await;
        let (answer,) = sqlx::query_as(sql).fetch_one(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        answer
    }

    pub(crate) async fn change(&self, sql: &'static str) {
        let mut conn = self.connect().await;
        sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
    }

    /// Rows of locks, holders and waiters.
    pub(crate) async fn rows(&self) -> i64 {
        self.ask(
            "SELECT (SELECT count(*) FROM dlock_locks) + (SELECT count(*) FROM dlock_shares) \
             + (SELECT count(*) FROM dlock_writers)",
        )
        .await
    }
}

pub(crate) fn url(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

/// A claim on the key `a`.
pub(crate) fn mode_claim(mode: Mode) -> Arc<Claim> {
    claim_in("a", mode, TTL)
}

/// A claim on the key `a` for one start in each period.
pub(crate) fn run_claim(period: Duration, rerun: bool) -> Arc<Claim> {
    let once_per = OncePer::new(period).rerun(rerun);
    claim_on(&key("a"), TTL, |claim| claim.once_per = Some(Box::new(once_per)))
}

pub(crate) fn permits(limit: u32) -> Mode {
    Mode::Permits(NonZeroU32::new(limit).unwrap())
}

/// Asks for a lock that another owner holds, and expects a refusal.
pub(crate) async fn contended(store: &Sqlite, claim: &Arc<Claim>, queue: Queue) -> Wake {
    match store.try_acquire(claim, queue).await.unwrap() {
        Attempt::Contended(wake) => wake,
        other => panic!("not contended: {other:?}"),
    }
}

/// Refused because another mode holds it.
pub(crate) async fn conflicts(store: &Sqlite, claim: &Arc<Claim>, queue: Queue) {
    let error = store.try_acquire(claim, queue).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::KeyConflict) && !error.is_retryable(), "{error}");
}

/// Refused because the period's run was started.
pub(crate) async fn already_run(store: &Sqlite, claim: &Arc<Claim>) {
    let answer = store.try_acquire(claim, Queue::Leave).await.unwrap();
    assert!(matches!(answer, Attempt::AlreadyRun), "{answer:?}");
}

pub(crate) fn slot(hold: &Hold) -> u32 {
    hold.slot.unwrap()
}

pub(crate) async fn is_held(store: &Sqlite, text: &str) -> bool {
    let probe = claim(text, TTL);
    match store.try_acquire(&probe, Queue::Leave).await.unwrap() {
        Attempt::Acquired(hold) => {
            assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
            false
        }
        Attempt::Contended(_) => true,
        Attempt::AlreadyRun => panic!("a claim without a period"),
    }
}
