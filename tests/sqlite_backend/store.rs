//! A file, opened as several processes would, and the claims on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dlock::backends::sqlite::Sqlite;
use dlock::{Attempt, Backend, Claim, Clock, Key, LockKey, Released, Stand};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) struct Store {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) clock: Clock,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: Clock::system() }
    }

    pub(crate) fn with_clock(clock: Clock) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    /// Another backend value on the same file, as another process would have.
    pub(crate) async fn open(&self) -> Sqlite {
        Sqlite::open(&url(&self.path()), &self.clock).await.unwrap()
    }

    pub(crate) async fn connect(&self) -> SqliteConnection {
        SqliteConnectOptions::new().filename(self.path()).connect().await.unwrap()
    }

    /// Asks the file itself, over a connection of the test's own.
    pub(crate) async fn ask(&self, sql: &'static str) -> i64 {
        let mut conn = self.connect().await;
        let (answer,) = sqlx::query_as(sql).fetch_one(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        answer
    }
}

pub(crate) fn url(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

pub(crate) fn key(text: &str) -> LockKey {
    LockKey::new("test", Key::new().value(text)).unwrap()
}

pub(crate) fn claim(text: &str, ttl: Duration) -> Arc<Claim> {
    Arc::new(Claim::new(key(text), ttl, "site").unwrap())
}

pub(crate) async fn is_held(store: &Sqlite, text: &str) -> bool {
    let probe = claim(text, TTL);
    match store.try_acquire(&probe, Stand::No).await.unwrap() {
        Attempt::Acquired(hold) => {
            assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
            false
        }
        Attempt::Contended(_) => true,
        Attempt::AlreadyRun => panic!("a claim without a period"),
    }
}
