//! SQLite: the rows, and the open connections of this process.

use std::path::PathBuf;

use futures::future::BoxFuture;
use sqlx::{Connection, SqliteConnection};

use super::Probe;

pub(crate) struct File(pub(crate) String);

impl Probe for File {
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut connection = SqliteConnection::connect(&self.0).await.unwrap();
            sqlx::query_scalar("SELECT k FROM dlock_locks").fetch_all(&mut connection).await.unwrap()
        })
    }

    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            // One for each connection. The file itself would not do: SQLite closes it late, since an early close would
            // take the locks of its other connections away.
            let path = PathBuf::from(format!("{}-wal", self.0.strip_prefix("sqlite://").unwrap()));
            let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
            let files = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
            let connections = files.filter(|file| *file == *path);
            connections.map(|file| format!("connection {}", file.display())).collect()
        })
    }
}
