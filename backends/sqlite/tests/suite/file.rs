//! SQLite, as the suite reaches it.

use std::any::Any;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, Error, LockKey, Result};
use dlock_sqlite::Sqlite;
use dlock_store::Clock;
use futures::future::BoxFuture;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

/// A file in a folder of its own.
pub(crate) fn file() -> Result<Box<dyn Store>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    Ok(Box::new(File { folder }))
}

struct File {
    folder: tempfile::TempDir,
}

impl File {
    async fn connect(&self) -> Result<SqliteConnection> {
        let options = SqliteConnectOptions::new().filename(self.folder.path().join("locks.db"));
        options.connect().await.map_err(raw)
    }

    fn open_with(&self, options: &str, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = format!("sqlite://{}{options}", self.folder.path().join("locks.db").display());
        Box::pin(async move { Ok(Arc::new(Sqlite::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }
}

impl Store for File {
    fn name(&self) -> String {
        "sqlite".into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        self.open_with("", clock)
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        Some(self.open_with("?shared=allow", clock))
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async {
            let mut connection = self.connect().await?;
            let rows = sqlx::query_scalar(
                "SELECT note FROM dlock_locks WHERE k = ?1 UNION ALL SELECT note FROM dlock_shares WHERE k = ?1 \
                 UNION ALL SELECT 'a writer waits' FROM dlock_writers WHERE k = ?1",
            )
            .bind(key.as_str());
            let rows = rows.fetch_all(&mut connection).await.map_err(raw)?;
            connection.close().await.map_err(raw)?;
            Ok(rows)
        })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async {
            let mut connection = self.connect().await?;
            for gone in ["DELETE FROM dlock_shares WHERE k = ?", "DELETE FROM dlock_locks WHERE k = ?"] {
                sqlx::query(gone).bind(key.as_str()).execute(&mut connection).await.map_err(raw)?;
            }
            connection.close().await.map_err(raw)
        }))
    }

    /// A file cannot be cut off like a server. Only another transaction that does not end blocks it. A request that waits
    /// for it may be done after its caller has given up: its answer is lost.
    fn outage(&self, _: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        Some(Box::pin(async {
            let mut connection = self.connect().await?;
            sqlx::query("BEGIN EXCLUSIVE").execute(&mut connection).await.map_err(raw)?;
            Ok(Box::new(connection) as Box<dyn Any + Send>)
        }))
    }

    /// There is no server; what counts is that clients which open the file later find everything.
    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async { Ok(()) }))
    }
}

fn raw(error: sqlx::Error) -> Error {
    Error::outage("the raw connection failed").because(error)
}
