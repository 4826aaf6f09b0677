//! One connection to the file, and whose turn it is on it.

use std::sync::Arc;

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use super::fault::{fault, is_broken};
use super::file::Identity;
use super::{Site, schema};
use crate::error::{Error, ErrorKind, Result};

/// A connection with its own thread. A request that nobody awaits any more is finished by that thread before the next.
#[derive(Debug)]
pub(super) struct Line {
    site: Arc<Site>,
    slot: Mutex<Option<Connected>>,
}

/// A connection, and which file it was opened on.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) conn: SqliteConnection,
    pub(super) file: Identity,
    pub(super) broken: bool,
}

/// A turn on a line.
#[derive(Debug)]
pub(super) struct Turn<'a>(MappedMutexGuard<'a, Connected>);

impl Line {
    pub(super) fn new(site: Arc<Site>, connected: Option<Connected>) -> Self {
        Self { site, slot: Mutex::new(connected) }
    }

    /// Waits for the turn; connects if need be.
    pub(super) async fn turn(&self) -> Result<Turn<'_>> {
        let mut slot = self.slot.lock().await;
        if let Some(connected) = slot.as_ref() {
            // Whoever opens the path now may see another file; two files exclude nobody.
            let moved = self.site.place.identity().ok() != Some(connected.file);
            if moved || connected.broken {
                *slot = None;
            }
            if moved {
                return Err(Error::outage(
                    "the lock file was removed or replaced while it was open; it is opened anew",
                ));
            }
        }
        if slot.is_none() {
            *slot = Some(schema::prepare(&self.site).await?);
        }
        MutexGuard::try_map(slot, Option::as_mut)
            .map(Turn)
            .map_err(|_| Error::new(ErrorKind::Internal, "a connection vanished in the middle of a turn"))
    }

    pub(super) async fn close(&self) {
        if let Some(connected) = self.slot.lock().await.take() {
            // The file is consistent either way; closing in order also tidies its log up.
            let _ = connected.conn.close().await;
        }
    }
}

impl Turn<'_> {
    pub(super) fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.0.conn
    }

    /// What a failed request means; a connection that it broke is opened anew next time.
    pub(super) fn fault(&mut self, error: sqlx::Error) -> Error {
        self.0.broken |= is_broken(&error);
        fault(error)
    }
}
