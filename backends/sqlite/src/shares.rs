//! Locks with several holders: readers, and permits.
//!
//! Every holder has its own row, with a lease and a number that no other living holder has. A writer is a holder that
//! must be alone. The key's row in `dlock_locks` sums the holders up. Triggers keep it right, so that a grant, a
//! renewal and a release are one statement each.
//!
//! A writer that was refused leaves a mark that it waits, and readers that come later wait behind it. The mark has a
//! lease, because its owner may die. The lease is a little longer than the writer's pause, and never much longer than
//! that of a dead holder. Each attempt writes the mark again.

use std::time::Duration;

use dlock_contract::{Attempt, Claim, Mode, Queue, Result};
use sqlx::sqlite::SqliteConnection;

use super::connection::FileConnection;
use super::request::{Granted, LockRequest, nanos, other_mode};
use super::time::Stamp;

/// How long a waiting writer keeps readers out beyond its own pause without asking again. It is many times the longest
/// default pause.
const WRITER_WAITS: Duration = Duration::from_secs(1);

/// Bounded by the ttl: a writer that dies while it waits costs no more than one that dies while it holds. A writer that
/// pauses for longer than that may be overtaken.
fn writer_waits(claim: &Claim, asks_again_within: Option<Duration>) -> Duration {
    WRITER_WAITS + asks_again_within.map_or(Duration::ZERO, |pause| pause.min(claim.ttl))
}

/// Wins if no other family has the key, no holder or waiter must be alone, and a number is free. It takes the lowest
/// number. An owner that already has it keeps its number and its token. Rows of dead holders are overwritten.
const ACQUIRE: &str = "\
    INSERT INTO dlock_shares (k, slot, family, alone, owner, token, expires, boot, note) \
    SELECT ?1, coalesce( \
        (SELECT slot FROM dlock_shares WHERE k = ?1 AND owner = ?2 AND boot = ?4 AND expires > ?6), \
        CASE \
        WHEN EXISTS (SELECT 1 FROM dlock_shares WHERE k = ?1 AND boot = ?4 AND expires > ?6 AND (alone OR ?8)) \
            OR ?10 AND EXISTS (SELECT 1 FROM dlock_writers WHERE k = ?1 AND boot = ?4 AND expires > ?6) \
            THEN NULL \
        WHEN NOT EXISTS (SELECT 1 FROM dlock_shares WHERE k = ?1 AND slot = 0 AND boot = ?4 AND expires > ?6) \
            THEN 0 \
        ELSE (SELECT min(slot) + 1 FROM dlock_shares AS s \
            WHERE k = ?1 AND boot = ?4 AND expires > ?6 AND slot + 1 < ?9 AND NOT EXISTS ( \
                SELECT 1 FROM dlock_shares WHERE k = ?1 AND slot = s.slot + 1 AND boot = ?4 AND expires > ?6)) \
        END) AS place, \
        ?7, ?8, ?2, (SELECT token + 1 FROM dlock_fence), ?3, ?4, ?5 \
    WHERE place IS NOT NULL \
    AND NOT EXISTS (SELECT 1 FROM dlock_locks WHERE k = ?1 AND boot = ?4 AND expires > ?6 AND owner <> ?7) \
    ON CONFLICT (k, slot) DO UPDATE SET \
        token = CASE WHEN owner = excluded.owner AND boot = excluded.boot AND expires > ?6 \
            THEN token ELSE excluded.token END, \
        family = excluded.family, alone = excluded.alone, owner = excluded.owner, expires = excluded.expires, \
        boot = excluded.boot, note = excluded.note \
    RETURNING token, slot";

/// Whether another mode has the key, and the ends of the leases: the first, the last, and those that block a reader.
const REFUSED: &str = "\
    SELECT coalesce((SELECT owner <> ?4 FROM dlock_locks WHERE k = ?1 AND boot = ?2 AND expires > ?3), 0), \
        min(expires) - ?3, max(expires) - ?3, max(CASE WHEN alone THEN expires END) - ?3, \
        (SELECT max(expires) FROM dlock_writers WHERE k = ?1 AND boot = ?2 AND expires > ?3) - ?3, \
        (SELECT note FROM dlock_shares WHERE k = ?1 AND boot = ?2 AND expires > ?3 ORDER BY token LIMIT 1) \
    FROM dlock_shares WHERE k = ?1 AND boot = ?2 AND expires > ?3";

const WAIT_AS_WRITER: &str = "\
    INSERT INTO dlock_writers (k, owner, since, expires, boot) VALUES (?1, ?2, ?3, ?4, ?5) \
    ON CONFLICT (k, owner) DO UPDATE SET since = excluded.since, expires = excluded.expires, boot = excluded.boot";

const WAIT_NO_MORE: &str = "DELETE FROM dlock_writers WHERE k = ?1 AND owner = ?2";

/// As for a lock with one holder.
pub(super) const RENEW: &str = "\
    UPDATE dlock_shares SET expires = ?2 + (j.value ->> 2) FROM json_each(?1) AS j \
    WHERE k = j.value ->> 0 AND owner = unhex(j.value ->> 1) AND boot = ?3 AND expires > ?2 \
    RETURNING owner";

/// Also deletes the rows of dead holders, so that the last holder leaves nothing.
const RELEASE: &str = "\
    DELETE FROM dlock_shares WHERE k = ?1 AND (owner = ?2 OR boot <> ?3 OR expires <= ?4) \
    RETURNING owner = ?2 AND boot = ?3 AND expires > ?4; \
    SELECT ?1 = '' COLLATE dlock_wake";

/// A dead hold is not renewed, because another owner may have its number.
const KEEP: &str = "\
    UPDATE dlock_shares SET owner = x'', expires = ?5 \
    WHERE k = ?1 AND owner = ?2 AND boot = ?3 AND expires > ?4; \
    SELECT ?1 = '' COLLATE dlock_wake";

/// The family of a lock mode. Only holders of one family hold a key at a time.
fn family(mode: Mode) -> String {
    match mode {
        Mode::Permits(limit) => format!("p{limit}"),
        _ => "rw".into(),
    }
}

/// The largest number of holders.
fn limit(mode: Mode) -> i64 {
    match mode {
        Mode::Permits(limit) => limit.get().into(),
        Mode::Read => i64::MAX,
        _ => 1,
    }
}

pub(super) async fn ask(conn: &mut SqliteConnection, request: &LockRequest<'_>) -> sqlx::Result<Option<Granted>> {
    let mode = request.claim.mode;
    let rows: Vec<(i64, i64)> = sqlx::query_as(ACQUIRE)
        .bind(request.claim.key.as_str())
        .bind(&request.claim.owner.as_bytes()[..])
        .bind(request.until)
        .bind(request.boot)
        .bind(request.claim.note.as_str())
        .bind(request.now.stored)
        .bind(family(mode).into_bytes())
        .bind(mode == Mode::Write)
        .bind(limit(mode))
        .bind(mode == Mode::Read)
        .fetch_all(conn)
        .await?;
    Ok(rows.first().map(|(token, slot)| Granted { token: *token, slot: Some(*slot) }))
}

/// The reason why the lock was not granted.
pub(super) async fn refused(
    connection: &mut FileConnection,
    request: &LockRequest<'_>,
    queue: Queue,
) -> Result<Attempt> {
    type Found = (bool, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<String>);
    let mode = request.claim.mode;
    let mut found: Vec<Found> = sqlx::query_as(REFUSED)
        .bind(request.claim.key.as_str())
        .bind(request.boot)
        .bind(request.now.stored)
        .bind(family(mode).into_bytes())
        .fetch_all(connection.conn())
        .await
        .map_err(|error| connection.fault(error))?;
    let (is_other_mode, first, last, writer, waits, note) = found.pop().unwrap_or_default();
    let waiting = match queue {
        Queue::Join { asks_again_within, .. } if mode == Mode::Write => {
            Some(writer_waits(request.claim, asks_again_within))
        }
        _ => None,
    };
    if is_other_mode {
        if waiting.is_some() {
            wait_no_more(connection, request.claim).await?;
        }
        return Err(other_mode());
    }
    if let Some(time) = waiting {
        wait_as_writer(connection, request, time).await?;
    }
    let left = match mode {
        Mode::Permits(_) => first,
        Mode::Read => writer.max(waits),
        _ => last,
    };
    Ok(request.contended(left.unwrap_or(0), note.as_deref()))
}

async fn wait_as_writer(connection: &mut FileConnection, request: &LockRequest<'_>, time: Duration) -> Result<()> {
    let done = sqlx::query(WAIT_AS_WRITER)
        .bind(request.claim.key.as_str())
        .bind(&request.claim.owner.as_bytes()[..])
        .bind(request.now.stored)
        .bind(request.now.stored.saturating_add(nanos(time)))
        .bind(request.boot)
        .execute(connection.conn())
        .await;
    done.map(drop).map_err(|error| connection.fault(error))
}

pub(super) async fn wait_no_more(connection: &mut FileConnection, claim: &Claim) -> Result<()> {
    let done = sqlx::query(WAIT_NO_MORE)
        .bind(claim.key.as_str())
        .bind(&claim.owner.as_bytes()[..])
        .execute(connection.conn())
        .await;
    done.map(drop).map_err(|error| connection.fault(error))
}

pub(super) async fn free(connection: &mut FileConnection, claim: &Claim, boot: &str, now: Stamp) -> Result<bool> {
    let rows: Vec<(bool,)> = sqlx::query_as(RELEASE)
        .bind(claim.key.as_str())
        .bind(&claim.owner.as_bytes()[..])
        .bind(boot)
        .bind(now.stored)
        .fetch_all(connection.conn())
        .await
        .map_err(|error| connection.fault(error))?;
    Ok(rows.contains(&(true,)))
}

pub(super) async fn keep(
    connection: &mut FileConnection,
    claim: &Claim,
    boot: &str,
    now: Stamp,
    until: i64,
) -> Result<bool> {
    let done = sqlx::query(KEEP)
        .bind(claim.key.as_str())
        .bind(&claim.owner.as_bytes()[..])
        .bind(boot)
        .bind(now.stored)
        .bind(until)
        .execute(connection.conn())
        .await
        .map_err(|error| connection.fault(error))?;
    Ok(done.rows_affected() > 0)
}
