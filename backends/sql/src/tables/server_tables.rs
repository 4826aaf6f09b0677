//! dlock's tables in a server: they are made if they are missing, and checked at each opening and each question after the
//! store's state.

use std::future::Future;

use dlock_contract::{ErrorKind, Result};

use crate::tables::schema_version::{compare_version, note_version, read_version};
use crate::tables::server_table::ServerTable;
use crate::tables::table_names::TableNames;

/// A connection to the server with the tables.
pub trait TableServer: Send {
    /// Ends an insert that changes nothing if the row is there.
    const UNLESS_THERE: &'static str;

    /// How the tables are named here.
    fn names(&self) -> &TableNames;

    /// Runs statements in one message.
    fn run(&mut self, sql: String) -> impl Future<Output = Result<()>> + Send;

    /// The one number that a query finds, if it finds a row.
    fn number(&mut self, sql: String) -> impl Future<Output = Result<Option<i64>>> + Send;

    /// Whether the table is there. An error if it is not as it must be.
    fn has(&mut self, table: &ServerTable) -> impl Future<Output = Result<bool>> + Send;
}

/// The tables of one way of locking.
#[derive(Clone, Copy, Debug)]
pub struct TableSet {
    /// The tables.
    pub tables: &'static [&'static ServerTable],
    /// The statements of a lock, with `{probe}` for a name of their own. So a missing right is reported when the store is opened,
    /// and not at the first lock. A readiness probe repeats them. Their transaction is rolled back.
    pub probes: &'static [&'static str],
}

/// Makes the tables that are missing, checks all, and tests the rights.
///
/// # Errors
/// If a table is not as it must be, if a right is missing, or if the tables have another version.
pub async fn prepare_tables<S: TableServer>(mut server: S, set: &TableSet) -> Result<()> {
    let server = &mut server;
    for table in set.tables {
        create_if_missing(server, table).await?;
    }
    test_rights(server, set.probes).await?;
    if !check_version(server).await? {
        let note = note_version(server.names(), S::UNLESS_THERE);
        server.run(note).await?;
        check_version(server).await?;
    }
    Ok(())
}

/// Checks that the tables are there, as they must be, in the version that this program knows, and tests the rights.
///
/// # Errors
/// If a table is not so, or if a right is missing.
pub async fn check_tables<S: TableServer>(mut server: S, set: &TableSet) -> Result<()> {
    let server = &mut server;
    for table in set.tables {
        if !server.has(table).await? {
            return Err(table.missing(server.names()));
        }
    }
    test_rights(server, set.probes).await?;
    check_version(server).await.map(drop)
}

async fn create_if_missing<S: TableServer>(server: &mut S, table: &ServerTable) -> Result<()> {
    if server.has(table).await? {
        return Ok(());
    }
    let create = table.create_if_missing(server.names());
    match server.run(create).await {
        Err(error) if *error.kind() == ErrorKind::PermissionDenied => Err(table.cannot_create(server.names())),
        // If two programs make the table at once, one of them may get an error. Then only the table's form counts.
        Err(error) => {
            if server.has(table).await? {
                Ok(())
            } else {
                Err(error)
            }
        }
        Ok(()) => {
            if server.has(table).await? {
                Ok(())
            } else {
                Err(table.missing(server.names()))
            }
        }
    }
}

/// Each test uses a name of its own, so that none waits for another.
async fn test_rights<S: TableServer>(server: &mut S, probes: &[&str]) -> Result<()> {
    let probes = server.names().in_text(&probes.join("; ")).replace("{probe}", &format!("{:016x}", fastrand::u64(..)));
    // As one message: a pooler could give its parts to different sessions.
    let tested = server.run(format!("BEGIN; {probes}; ROLLBACK")).await;
    if tested.is_err() {
        // Without this, the transaction would stay open.
        let _ = server.run("ROLLBACK".to_owned()).await;
    }
    tested
}

/// False if no version is noted yet.
async fn check_version<S: TableServer>(server: &mut S) -> Result<bool> {
    let Some(found) = server.number(read_version(server.names())).await? else { return Ok(false) };
    compare_version(server.names(), found).map(|()| true)
}
