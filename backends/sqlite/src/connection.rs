//! A connection to the file, which commits only while the file is the one at the path.

use dlock_contract::{Error, Result};
use sqlx::sqlite::SqliteConnection;

use super::fault::{fault, is_broken, moved};
use super::file::FileId;

/// A connection, which commits only as long as its file is the one at the path.
#[derive(Debug)]
pub(super) struct FileConnection {
    pub(super) conn: SqliteConnection,
    file: FileId,
    pub(super) broken: bool,
}

impl FileConnection {
    pub(super) fn new(conn: SqliteConnection, file: FileId) -> Self {
        Self { conn, file, broken: false }
    }

    /// Fails if the file that is now at the path is another one.
    pub(super) fn expect_file(&mut self, file: FileId) -> Result<()> {
        self.broken |= self.file != file;
        if self.file == file { Ok(()) } else { Err(moved()) }
    }

    pub(super) fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.conn
    }

    /// The error of a failed request. A connection that it broke is opened again next time.
    pub(super) fn fault(&mut self, error: sqlx::Error) -> Error {
        self.broken |= is_broken(&error);
        fault(error)
    }
}
