//! Deletes rows that were left behind under keys that nobody may ever ask for again.

use std::time::Duration;

use dlock_contract::Result;

use super::connection::FileConnection;
use super::fault::fault;
use super::time::Time;

/// The shortest time between two sweeps. A sweep runs at the end of a request.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The most rows of a table that one sweep deletes, because others wait for the file meanwhile.
const MOST_ROWS: i64 = 256;

/// Locks that were kept after their end (`min_hold`), and whose time is over. They have an index of their own. The row
/// of a shared key is deleted with its last holder.
const KEPT: [&str; 2] = [
    "DELETE FROM dlock_locks WHERE k IN \
        (SELECT k FROM dlock_locks WHERE length(owner) = 0 AND expires <= ?1 LIMIT ?2) \
        AND length(owner) = 0 AND expires <= ?1",
    "DELETE FROM dlock_shares WHERE (k, slot) IN \
        (SELECT k, slot FROM dlock_shares WHERE length(owner) = 0 AND expires <= ?1 LIMIT ?2) \
        AND length(owner) = 0 AND expires <= ?1",
];

/// Locks and waiting writers from before a restart of the host. All are dead.
const OF_OTHER_BOOTS: [&str; 3] = [
    "DELETE FROM dlock_shares WHERE boot <> ?1",
    "DELETE FROM dlock_locks WHERE boot <> ?1",
    "DELETE FROM dlock_writers WHERE boot <> ?1",
];

/// Deletes kept locks whose time is over; true if there may be more.
pub(super) async fn kept(connection: &mut FileConnection, time: &Time) -> Result<bool> {
    let (now, mut more) = (time.now()?, false);
    for sweep in KEPT {
        // If the connection is broken, the next caller's own request finds it out.
        let done =
            sqlx::query(sweep).bind(now.stored).bind(MOST_ROWS).execute(connection.conn()).await.map_err(fault)?;
        more |= done.rows_affected() >= MOST_ROWS.unsigned_abs();
    }
    Ok(more)
}

/// Deletes rows that a restart of the host has ended. Only the first process that opens the file after it has work to
/// do.
pub(super) async fn other_boots(connection: &mut FileConnection, time: &Time) -> Result<()> {
    for sweep in OF_OTHER_BOOTS {
        sqlx::query(sweep)
            .bind(time.boot())
            .execute(connection.conn())
            .await
            .map_err(|error| connection.fault(error))?;
    }
    Ok(())
}
