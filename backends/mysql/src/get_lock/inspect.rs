//! Which locks are held, and breaking a hold.
//!
//! Only the holder's process can end one hold and no other. A session that an operator kills may hold another lock by
//! then, since connections are used again. So an operator's process writes the request into the row of the lock, and the
//! holder's [monitor](super::monitor) finds it there and gives the lock up.

use std::future::ready;
use std::time::Duration;

use dlock_contract::{BreakRecord, Cursor, Error, ErrorKind, Hold, HoldId, Inspect, Listing, LockKey, Page, Result};
use futures::future::BoxFuture;
use sqlx::Row;

use super::link::{Link, text};
use super::name::name_of;
use super::session::Session;
use super::store::{GetLock, Shared};
use super::table::head_and_rest;
use crate::server::fault::fault;

/// How long the holder's process has for giving the lock up. Its monitor looks four times in a second.
const ANSWER: Duration = Duration::from_secs(2);
/// How often it is asked whether the lock was given up.
const AGAIN: Duration = Duration::from_millis(50);

/// A range of the index; rows of free locks in it count for the limit, so that the cost has a bound. Without the hint the
/// server may prefer to sort the whole table.
const NAMES: &str = "\
    SELECT key_head, key_rest, conn <=> IS_USED_LOCK(CONVERT(name USING utf8mb4)) \
    FROM dlock_named FORCE INDEX (by_key) \
    WHERE (key_head = ? AND name > ?) OR (key_head > ? AND key_head < ?) \
    ORDER BY key_head, name LIMIT ?";

const REQUEST: &str = "\
    UPDATE dlock_named SET broken_hold = hold, broken_record = ? \
    WHERE name = ? AND hold = ? AND conn = IS_USED_LOCK(?)";

const TAKE_BACK: &str = "UPDATE dlock_named SET broken_hold = NULL WHERE name = ? AND hold = ? AND broken_hold = hold";

const STANDS: &str = "SELECT 1 FROM dlock_named WHERE name = ? AND hold = ? AND conn = IS_USED_LOCK(?)";

const RECORD: &str = "SELECT broken_record FROM dlock_named WHERE name = ? AND broken_hold = ?";

impl Inspect for GetLock {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.shared.bounded(self.shared.list(listing)))
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.shared.bounded(self.shared.break_hold(key, id, record)))
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        if let Some(known) = hold.session::<Session>().and_then(Session::ending) {
            return Box::pin(ready(Ok(known)));
        }
        Box::pin(self.shared.bounded(async move {
            let (name, id) = (name_of(hold.claim.key.as_str()), HoldId::of(&hold.claim.owner));
            let (link, record) = self.shared.link().await?.record(&name, &id.to_string()).await?;
            self.shared.park(link).await;
            Ok(record)
        }))
    }
}

impl Shared {
    async fn list(&self, listing: &Listing) -> Result<Page> {
        let prefix = listing.name_prefix()?;
        let after = listing.after.as_ref().map_or("", Cursor::as_str);
        let (link, rows) = self.link().await?.names(&prefix, after, listing.limit()).await?;
        self.park(link).await;
        let last = rows.last().filter(|_| rows.len() >= listing.limit());
        let next = last.map(|(name, _)| Cursor::new(name.as_str()));
        // The range is one of heads: it says nothing about the rest of a long prefix.
        let held = rows.iter().filter(|(name, held)| *held && name.starts_with(&prefix));
        let key = |name| LockKey::from_stored(name).ok_or_else(corrupt);
        Ok(Page::new(held.map(|(name, _)| key(name)).collect::<Result<_>>()?, next))
    }

    async fn break_hold(&self, key: &LockKey, id: HoldId, record: &BreakRecord) -> Result<bool> {
        let (name, hold) = (name_of(key.as_str()), id.to_string());
        let (mut link, requested) = self.link().await?.request_break(&name, &hold, record).await?;
        let mut stands = requested;
        let end = self.clock.now().after(ANSWER);
        while stands && self.clock.now() < end {
            self.clock.sleep_until(self.clock.now().after(AGAIN)).await;
            (link, stands) = link.stands(&name, &hold).await?;
        }
        if stands {
            // If another hold has the row by now, this one has ended.
            (link, stands) = link.take_back(&name, &hold).await?;
        }
        self.park(link).await;
        match stands {
            true => Err(Error::outage(format!(
                "the holder did not give the lock up within {ANSWER:?}, and keeps it: its process is stopped, or cannot \
                 reach the store; end that process, or wait until the server frees the lock after the holder's ttl"
            ))),
            false => Ok(requested),
        }
    }
}

impl Link {
    /// Keys from a range of the index, each with whether it is held.
    async fn names(mut self, prefix: &str, after: &str, limit: usize) -> Result<(Self, Vec<(String, bool)>)> {
        let (start, _) = head_and_rest(prefix);
        // Keys are ASCII, so this is above all heads that begin so.
        let end = [start, b"\x7f"].concat();
        let last = (head_and_rest(after).0, name_of(after));
        let (head, name) = if last.0 < start { (start, String::new()) } else { last };
        let rows = sqlx::query(NAMES)
            .bind(head)
            .bind(name.as_bytes())
            .bind(head)
            .bind(end)
            .bind(u32::try_from(limit).unwrap_or(u32::MAX))
            .fetch_all(self.conn())
            .await
            .map_err(fault)?;
        let read = rows.iter().map(|row| {
            let held: i64 = row.try_get_unchecked(2)?;
            Ok((text(row, 0)? + &text(row, 1)?, held == 1))
        });
        let names = read.collect::<sqlx::Result<_>>().map_err(fault)?;
        Ok((self, names))
    }

    /// Asks the holder to give up this hold; false if it does not hold the lock.
    async fn request_break(mut self, name: &str, hold: &str, record: &BreakRecord) -> Result<(Self, bool)> {
        let request = sqlx::query(REQUEST)
            .bind(record.as_str().as_bytes())
            .bind(name.as_bytes())
            .bind(hold.as_bytes())
            .bind(name)
            .execute(self.conn())
            .await
            .map_err(fault)?;
        Ok((self, request.rows_affected() > 0))
    }

    /// Takes the request back; false if the row is another hold's.
    async fn take_back(mut self, name: &str, hold: &str) -> Result<(Self, bool)> {
        let taken = sqlx::query(TAKE_BACK)
            .bind(name.as_bytes())
            .bind(hold.as_bytes())
            .execute(self.conn())
            .await
            .map_err(fault)?;
        Ok((self, taken.rows_affected() > 0))
    }

    /// Whether this hold holds the lock.
    async fn stands(mut self, name: &str, hold: &str) -> Result<(Self, bool)> {
        let rows = sqlx::query(STANDS).bind(name.as_bytes()).bind(hold.as_bytes()).bind(name);
        let stands = rows.fetch_optional(self.conn()).await.map_err(fault)?.is_some();
        Ok((self, stands))
    }

    async fn record(mut self, name: &str, hold: &str) -> Result<(Self, Option<BreakRecord>)> {
        let rows = sqlx::query(RECORD).bind(name.as_bytes()).bind(hold.as_bytes());
        let row = rows.fetch_optional(self.conn()).await.map_err(fault)?;
        let record = row.map(|row| text(&row, 0)).transpose().map_err(fault)?;
        Ok((self, record.map(|record| BreakRecord::from_stored(&record))))
    }
}

fn corrupt() -> Error {
    Error::new(
        ErrorKind::CorruptState,
        "a row of dlock_named has a key that dlock cannot have written; delete that row",
    )
}
