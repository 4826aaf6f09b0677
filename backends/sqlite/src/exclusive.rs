//! Exclusive locks.

use dlock_contract::{Attempt, Claim, Result};
use sqlx::sqlite::SqliteConnection;

use super::connection::FileConnection;
use super::request::{Granted, LockRequest, other_mode};

/// Wins if the lock is free, expired, from before a restart of the host, or already this owner's. In the last case it
/// keeps its token. A trigger raises the counter with every new grant, inside the same statement.
const ACQUIRE: &str = "\
    INSERT INTO dlock_locks (k, owner, token, expires, boot, note) \
    VALUES (?1, ?2, (SELECT token + 1 FROM dlock_fence), ?3, ?4, ?5) \
    ON CONFLICT (k) DO UPDATE SET \
        token = CASE WHEN owner = excluded.owner THEN token ELSE excluded.token END, \
        owner = excluded.owner, expires = excluded.expires, boot = excluded.boot, note = excluded.note \
    WHERE owner = excluded.owner OR boot <> excluded.boot OR expires <= ?6 \
    RETURNING token";

/// Also whether several holders of another mode have the key.
const LEASE_LEFT: &str = "\
    SELECT expires - ?2, length(owner) NOT IN (0, 16), note FROM dlock_locks WHERE k = ?1 AND boot = ?3";

/// Any number of holds in one statement, hence in one commit.
pub(super) const RENEW: &str = "\
    UPDATE dlock_locks SET expires = ?2 + (j.value ->> 2) FROM json_each(?1) AS j \
    WHERE k = j.value ->> 0 AND owner = unhex(j.value ->> 1) AND boot = ?3 AND expires > ?2 \
    RETURNING owner";

/// The second statement wakes the waiters; see [`COLLATION`](super::wakes::COLLATION).
const RELEASE: &str = "\
    DELETE FROM dlock_locks WHERE k = ?1 AND owner = ?2; \
    SELECT ?1 = '' COLLATE dlock_wake";

/// Leaves the key taken, without an owner.
const KEEP: &str = "\
    UPDATE dlock_locks SET owner = x'', expires = ?3 WHERE k = ?1 AND owner = ?2; \
    SELECT ?1 = '' COLLATE dlock_wake";

pub(super) async fn ask(conn: &mut SqliteConnection, request: &LockRequest<'_>) -> sqlx::Result<Option<Granted>> {
    let rows: Vec<(i64,)> = sqlx::query_as(ACQUIRE)
        .bind(request.claim.key.as_str())
        .bind(&request.claim.owner.as_bytes()[..])
        .bind(request.until)
        .bind(request.boot)
        .bind(request.claim.note.as_str())
        .bind(request.now.stored)
        .fetch_all(conn)
        .await?;
    Ok(rows.first().map(|(token,)| Granted { token: *token, slot: None }))
}

/// The reason why the lock was not granted.
pub(super) async fn refused(connection: &mut FileConnection, request: &LockRequest<'_>) -> Result<Attempt> {
    let found: Vec<(i64, bool, String)> = sqlx::query_as(LEASE_LEFT)
        .bind(request.claim.key.as_str())
        .bind(request.now.stored)
        .bind(request.boot)
        .fetch_all(connection.conn())
        .await
        .map_err(|error| connection.fault(error))?;
    match found.first() {
        Some((left, true, _)) if *left > 0 => Err(other_mode()),
        Some((left, _, note)) => Ok(request.contended(*left, Some(note))),
        // The lock was freed in between.
        None => Ok(request.contended(0, None)),
    }
}

pub(super) async fn free(connection: &mut FileConnection, claim: &Claim) -> Result<bool> {
    let done = sqlx::query(RELEASE)
        .bind(claim.key.as_str())
        .bind(&claim.owner.as_bytes()[..])
        .execute(connection.conn())
        .await
        .map_err(|error| connection.fault(error))?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn keep(connection: &mut FileConnection, claim: &Claim, until: i64) -> Result<bool> {
    let done = sqlx::query(KEEP)
        .bind(claim.key.as_str())
        .bind(&claim.owner.as_bytes()[..])
        .bind(until)
        .execute(connection.conn())
        .await
        .map_err(|error| connection.fault(error))?;
    Ok(done.rows_affected() > 0)
}
