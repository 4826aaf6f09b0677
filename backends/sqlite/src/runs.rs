//! `once_per`: locks that start at most once in each period, and the last run that succeeded.
//!
//! A key's row in `dlock_runs` says which boundary of its period was started last. Starting and ending a run are one
//! statement each, on that row; triggers carry the lock's own row along. Unlike a lock, a start is still believed
//! after a restart of the host: it waits for the disk.
//!
//! The time is the host's, read by SQLite itself. All processes share it, and none can be given another.

use std::time::{Duration, UNIX_EPOCH};

use dlock_contract::{Attempt, Claim, LastSuccess, LockKey, Note, OncePer, Result, RunEnd};
use sqlx::sqlite::SqliteConnection;

use super::connection::FileConnection;
use super::fault::corrupt;
use super::request::{Granted, LockRequest, nanos, other_mode};
use super::schema;
use super::time::Time;

/// Wins if the lock is free and the run of this boundary was not started. A run that may be run again counts as not
/// started, and so does a start of this very claim, which has not begun it if it still asks.
const START: &str = "\
    INSERT INTO dlock_runs (k, boundary, open, owner, token, expires, boot, note, started) \
    SELECT ?1, (t.now - ?9 + ?7 / 2) / ?7 * ?7 + ?9, 1, ?2, (SELECT token + 1 FROM dlock_fence), ?3, ?4, ?5, t.now \
    FROM (SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000000 AS now) AS t \
    WHERE NOT EXISTS (SELECT 1 FROM dlock_locks WHERE k = ?1 AND boot = ?4 AND expires > ?6) \
    ON CONFLICT (k) DO UPDATE SET \
        boundary = max(boundary, excluded.boundary), open = 1, owner = excluded.owner, token = excluded.token, \
        expires = excluded.expires, boot = excluded.boot, note = excluded.note, started = excluded.started \
    WHERE boundary < excluded.boundary OR open AND (?8 OR owner = excluded.owner) \
    RETURNING token";

/// The reply of an earlier attempt was lost.
const ARM_ANEW: &str = "UPDATE dlock_locks SET expires = ?3, boot = ?4 WHERE k = ?1 AND owner = ?2 RETURNING token";

/// Whether this owner has the lock, whether it has another mode, the time left of its lease, and whether this boundary
/// was started.
const REFUSED: &str = "\
    SELECT coalesce(l.owner = ?2, 0), coalesce(length(l.owner) NOT IN (0, 16), 0), coalesce(l.expires - ?3, 0), \
        coalesce(r.boundary >= (t.now - ?7 + ?5 / 2) / ?5 * ?5 + ?7, 0), coalesce(r.open AND (?6 OR r.owner = ?2), 0) \
    FROM (SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000000 AS now) AS t \
    LEFT JOIN dlock_locks AS l ON l.k = ?1 AND l.boot = ?4 \
    LEFT JOIN dlock_runs AS r ON r.k = ?1";

/// Ends the run and its hold in one step, if this owner has both. `expires` is the end of `min_hold`, or zero.
const END: &str = "\
    UPDATE dlock_runs SET open = 0, expires = ?3, \
        good_started = CASE WHEN ?4 IS NULL THEN good_started ELSE started END, \
        good_took = coalesce(?4, good_took), \
        good_note = CASE WHEN ?4 IS NULL THEN good_note ELSE note END \
    WHERE k = ?1 AND owner = ?2 AND open \
        AND EXISTS (SELECT 1 FROM dlock_locks WHERE k = ?1 AND owner = ?2); \
    SELECT ?1 = '' COLLATE dlock_wake";

/// Nothing was run under this claim: its boundary is due again, and all earlier ones are not. The trigger of the run's
/// end frees the lock.
const GIVE_BACK: &str = "\
    UPDATE dlock_runs SET boundary = boundary - 1, open = 0, expires = 0 WHERE k = ?1 AND owner = ?2 AND open";

/// A success without a period, of the present holder. The row that it goes into notes no start, and the trigger that
/// carries a new one over changes nothing: it has the lock's own values.
const RECORD: &str = "\
    INSERT INTO dlock_runs \
        (k, boundary, open, owner, token, expires, boot, note, started, good_started, good_took, good_note) \
    SELECT l.k, -1, 0, l.owner, l.token, l.expires, l.boot, l.note, t.now, max(t.now - ?3, 0), ?3, l.note \
    FROM dlock_locks AS l, (SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000000 AS now) AS t \
    WHERE l.k = ?1 AND l.owner = ?2 \
    ON CONFLICT (k) DO UPDATE SET \
        good_started = excluded.good_started, good_took = excluded.good_took, good_note = excluded.good_note";

const LAST_SUCCESS: &str = "\
    SELECT good_started, good_took, good_note FROM dlock_runs WHERE k = ?1 AND good_started IS NOT NULL";

pub(super) async fn ask(
    conn: &mut SqliteConnection,
    request: &LockRequest<'_>,
    time: &Time,
    once: OncePer,
) -> sqlx::Result<Option<Granted>> {
    schema::wait_for_disk(conn).await?;
    let rows: sqlx::Result<Vec<(i64,)>> = sqlx::query_as(START)
        .bind(request.claim.key.as_str())
        .bind(&request.claim.owner.as_bytes()[..])
        .bind(request.until)
        .bind(request.boot)
        .bind(request.claim.note.as_str())
        .bind(request.now.stored)
        .bind(nanos(once.period))
        .bind(once.rerun)
        .bind(nanos(once.offset))
        .fetch_all(&mut *conn)
        .await;
    schema::no_more_waiting(conn, time).await?;
    Ok(rows?.first().map(|(token,)| Granted { token: *token, slot: None }))
}

/// The reason why the run was not started.
pub(super) async fn refused(
    connection: &mut FileConnection,
    request: &LockRequest<'_>,
    once: OncePer,
) -> Result<Attempt> {
    let found: Vec<(bool, bool, i64, bool, bool)> = sqlx::query_as(REFUSED)
        .bind(request.claim.key.as_str())
        .bind(&request.claim.owner.as_bytes()[..])
        .bind(request.now.stored)
        .bind(request.boot)
        .bind(nanos(once.period))
        .bind(once.rerun)
        .bind(nanos(once.offset))
        .fetch_all(connection.conn())
        .await
        .map_err(|error| connection.fault(error))?;
    let Some(&(is_own, is_other_mode, left, started, may_rerun)) = found.first() else {
        return Err(corrupt("it has no time"));
    };
    if is_own && let Some(granted) = arm_anew(connection, request).await? {
        return request.acquired(granted);
    }
    if is_other_mode && left > 0 {
        return Err(other_mode());
    }
    // A run that may be repeated is repeated once its lock is free.
    if started && !may_rerun {
        return Ok(Attempt::AlreadyRun);
    }
    Ok(request.contended(left, None))
}

async fn arm_anew(connection: &mut FileConnection, request: &LockRequest<'_>) -> Result<Option<Granted>> {
    let rows: Vec<(i64,)> = sqlx::query_as(ARM_ANEW)
        .bind(request.claim.key.as_str())
        .bind(&request.claim.owner.as_bytes()[..])
        .bind(request.until)
        .bind(request.boot)
        .fetch_all(connection.conn())
        .await
        .map_err(|error| connection.fault(error))?;
    Ok(rows.first().map(|(token,)| Granted { token: *token, slot: None }))
}

pub(super) async fn end(
    connection: &mut FileConnection,
    time: &Time,
    claim: &Claim,
    run: RunEnd,
    keep: Option<i64>,
) -> Result<bool> {
    let took = match run {
        RunEnd::Failed => None,
        RunEnd::Succeeded { took } => Some(nanos(took)),
    };
    schema::wait_for_disk(connection.conn()).await.map_err(|error| connection.fault(error))?;
    let done = sqlx::query(END)
        .bind(claim.key.as_str())
        .bind(&claim.owner.as_bytes()[..])
        .bind(keep.unwrap_or(0))
        .bind(took)
        .execute(connection.conn())
        .await;
    schema::no_more_waiting(connection.conn(), time).await.map_err(|error| connection.fault(error))?;
    Ok(done.map_err(|error| connection.fault(error))?.rows_affected() > 0)
}

/// Makes the period due again, but not with `rerun`: then a start that has not ended may be run again anyway, and it
/// may be the start of another owner that died. A power failure may undo this. Then the period is used up, which is
/// safe.
pub(super) async fn give_back(connection: &mut FileConnection, claim: &Claim, once: OncePer) -> Result<()> {
    if once.rerun {
        return Ok(());
    }
    let done = sqlx::query(GIVE_BACK)
        .bind(claim.key.as_str())
        .bind(&claim.owner.as_bytes()[..])
        .execute(connection.conn())
        .await;
    done.map(drop).map_err(|error| connection.fault(error))
}

/// Records the success of a hold that still is to be ended: should the caller be dropped in between, both are done
/// again.
pub(super) async fn record(connection: &mut FileConnection, time: &Time, claim: &Claim, took: Duration) -> Result<()> {
    schema::wait_for_disk(connection.conn()).await.map_err(|error| connection.fault(error))?;
    let done = sqlx::query(RECORD)
        .bind(claim.key.as_str())
        .bind(&claim.owner.as_bytes()[..])
        .bind(nanos(took))
        .execute(connection.conn())
        .await;
    schema::no_more_waiting(connection.conn(), time).await.map_err(|error| connection.fault(error))?;
    done.map(drop).map_err(|error| connection.fault(error))
}

pub(super) async fn last_success(connection: &mut FileConnection, key: &LockKey) -> Result<Option<LastSuccess>> {
    let rows: Vec<(u64, u64, String)> = sqlx::query_as(LAST_SUCCESS)
        .bind(key.as_str())
        .fetch_all(connection.conn())
        .await
        .map_err(|error| connection.fault(error))?;
    let Some((started, took, note)) = rows.first() else { return Ok(None) };
    let started =
        UNIX_EPOCH.checked_add(Duration::from_nanos(*started)).ok_or_else(|| corrupt("a run without a start time"))?;
    Ok(Some(LastSuccess::new(started, Duration::from_nanos(*took), Note::from_stored(note))))
}
