//! The application's own database, beside the locks: what the locks protect, and what the examples count in the end.

use std::path::Path;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

/// Opens the file `app.db` in the folder, for the parent and its workers.
pub(crate) async fn database(folder: &Path) -> sqlx::Result<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(folder.join("app.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // It need not outlive a power failure.
        .synchronous(SqliteSynchronous::Off)
        .busy_timeout(Duration::from_secs(60));
    SqlitePoolOptions::new().max_connections(4).acquire_timeout(Duration::from_secs(60)).connect_with(options).await
}
