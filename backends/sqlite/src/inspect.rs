//! Inspection: the holders of a lock, listings of held locks, and breaking a hold.

use std::time::Duration;

use dlock_contract::{
    BreakRecord, Claim, Cursor, Hold, HoldId, Holder, Inspect, Listing, LockKey, LockState, Mode, Note, Owner, Page,
    Result,
};
use futures::future::BoxFuture;

use crate::connection::FileConnection;
use crate::context::StoreContext;
use crate::fault::corrupt;
use crate::modes::free;
use crate::request::nanos;
use crate::store::Sqlite;

/// The shortest time for which the record of a broken hold is kept.
const SHORTEST_KEEP: Duration = Duration::from_secs(60);

/// The row of a lock with one holder, or those of the shares. A row whose owner is empty is kept after its hold's end.
const HOLDERS: &str = "\
    SELECT owner, token, expires - ?3, note, NULL, 0 FROM dlock_locks \
    WHERE k = ?1 AND boot = ?2 AND expires > ?3 AND length(owner) IN (0, 16) \
    UNION ALL \
    SELECT owner, token, expires - ?3, note, CASE WHEN family = x'7277' THEN NULL ELSE slot END, 1 FROM dlock_shares \
    WHERE k = ?1 AND boot = ?2 AND expires > ?3 \
    ORDER BY token";

/// A range of the primary key; rows of dead locks in it count for the limit, so that the cost has a bound.
const NAMES: &str = "\
    SELECT k, boot = ?4 AND expires > ?5 FROM dlock_locks WHERE k > ?1 AND k >= ?2 AND k < ?3 ORDER BY k LIMIT ?6";

const LEAVE_RECORD: &str = "\
    INSERT INTO dlock_broken (hold, record, expires, now, boot) VALUES (?1, ?2, ?3, ?4, ?5) \
    ON CONFLICT (hold) DO UPDATE SET record = excluded.record, expires = excluded.expires, boot = excluded.boot";

const TAKE_BACK: &str = "DELETE FROM dlock_broken WHERE hold = ?1";

const RECORD: &str = "SELECT record FROM dlock_broken WHERE hold = ?1 AND boot = ?2 AND expires > ?3";

/// One row of [`HOLDERS`]: owner, token, lease left, note, slot, and whether it is a share.
type Row = (Vec<u8>, i64, i64, String, Option<i64>, bool);

async fn rows(connection: &mut FileConnection, context: &StoreContext, key: &LockKey) -> Result<Vec<Row>> {
    let now = context.time.now()?.stored;
    let rows =
        sqlx::query_as(HOLDERS).bind(key.as_str()).bind(context.time.boot()).bind(now).fetch_all(connection.conn());
    rows.await.map_err(|error| connection.fault(error))
}

pub(super) async fn look(connection: &mut FileConnection, context: &StoreContext, key: &LockKey) -> Result<LockState> {
    let rows = rows(connection, context, key).await?;
    let holders = rows.into_iter().map(|(owner, token, left, note, slot, _)| {
        Ok(Holder::new(Note::from_stored(&note)).with(|holder| {
            holder.id = owner_of(&owner).as_ref().map(HoldId::of);
            holder.token = u64::try_from(token).ok();
            holder.lease_left = u64::try_from(left).ok().map(Duration::from_nanos);
            holder.slot = slot.and_then(|slot| u32::try_from(slot).ok());
        }))
    });
    // Waiters poll; nobody counts them.
    Ok(LockState::new(holders.collect::<Result<_>>()?, None))
}

fn owner_of(stored: &[u8]) -> Option<Owner> {
    stored.try_into().ok().map(Owner::from_bytes)
}

impl Inspect for Sqlite {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        let listing = listing.clone();
        Box::pin(self.read(|connection, context| Box::pin(async move { list(connection, context, &listing).await })))
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        let (key, record) = (key.clone(), record.clone());
        Box::pin(self.change(move |connection, context| {
            Box::pin(async move { break_hold(connection, context, &key, id, &record).await })
        }))
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        let id = HoldId::of(&hold.claim.owner);
        Box::pin(
            self.read(move |connection, context| Box::pin(async move { record_of(connection, context, id).await })),
        )
    }
}

async fn list(connection: &mut FileConnection, context: &StoreContext, listing: &Listing) -> Result<Page> {
    let prefix = listing.name_prefix()?;
    // Names are ASCII, so this is above all that begin with the prefix.
    let end = format!("{prefix}\u{7f}");
    let after = listing.after.as_ref().map_or("", Cursor::as_str);
    let names: Vec<(String, bool)> = sqlx::query_as(NAMES)
        .bind(after)
        .bind(&prefix)
        .bind(end)
        .bind(context.time.boot())
        .bind(context.time.now()?.stored)
        .bind(i64::try_from(listing.limit()).unwrap_or(i64::MAX))
        .fetch_all(connection.conn())
        .await
        .map_err(|error| connection.fault(error))?;
    let last = names.last().filter(|_| names.len() >= listing.limit());
    let next = last.map(|(name, _)| Cursor::new(name.as_str()));
    let held = names.iter().filter(|(_, held)| *held);
    let keys = held.map(|(name, _)| LockKey::from_stored(name).ok_or_else(|| corrupt("a name that is not a key")));
    Ok(Page::new(keys.collect::<Result<_>>()?, next))
}

/// The record comes first, so that a holder which hears of its loss finds it.
async fn break_hold(
    connection: &mut FileConnection,
    context: &StoreContext,
    key: &LockKey,
    id: HoldId,
    record: &BreakRecord,
) -> Result<bool> {
    let rows = rows(connection, context, key).await?;
    let found = rows.iter().find_map(|(owner, _, left, note, _, shared)| {
        let owner = owner_of(owner).filter(|owner| HoldId::of(owner) == id)?;
        Some((owner, *left, note, *shared))
    });
    let Some((owner, left, note, shared)) = found else { return Ok(false) };
    let now = context.time.now()?.stored;
    let leave_record = sqlx::query(LEAVE_RECORD)
        .bind(id.to_string())
        .bind(record.as_str())
        .bind(now.saturating_add(left.max(nanos(SHORTEST_KEEP))))
        .bind(now)
        .bind(context.time.boot());
    leave_record.execute(connection.conn()).await.map_err(|error| connection.fault(error))?;
    let claim = Claim::plain(key.clone(), owner, Duration::ZERO, Note::from_stored(note))
        .with(|claim| claim.mode = if shared { Mode::Read } else { Mode::Exclusive });
    let freed = free(connection, context, &claim).await?;
    if !freed {
        let take_back = sqlx::query(TAKE_BACK).bind(id.to_string());
        take_back.execute(connection.conn()).await.map_err(|error| connection.fault(error))?;
    }
    Ok(freed)
}

async fn record_of(connection: &mut FileConnection, context: &StoreContext, id: HoldId) -> Result<Option<BreakRecord>> {
    let now = context.time.now()?.stored;
    let record =
        sqlx::query_as(RECORD).bind(id.to_string()).bind(context.time.boot()).bind(now).fetch_all(connection.conn());
    let records: Vec<(String,)> = record.await.map_err(|error| connection.fault(error))?;
    Ok(records.first().map(|(record,)| BreakRecord::from_stored(record)))
}
