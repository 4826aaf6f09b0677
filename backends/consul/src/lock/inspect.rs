//! Inspection: the holders of a lock, listings of held locks, and breaking a hold.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BreakRecord, Cursor, HoldId, Holder, Listing, LockKey, LockState, Page, Result};

use crate::api::kv::{self, Entry};
use crate::api::session;
use crate::api::txn::{self, Op, TxnOutcome};
use crate::lock::name::{lock_of, without_slashes};
use crate::lock::permits::Permits;
use crate::lock::shared::Shared;
use crate::lock::value::{HoldValue, LOCK, SEMAPHORE};

/// The record of a broken hold is kept for at least this time.
const MIN_RECORD_TIME: Duration = Duration::from_secs(60);

/// The prefix of the keys of all records. No namespace can contain `!`.
const RECORD_PREFIX: &str = "dl1:!broken:";

impl Shared {
    pub(crate) async fn look(self: Arc<Self>, key: LockKey) -> Result<LockState> {
        let name = self.name(&key)?;
        let seen = kv::read(&self.http, &name.lock, None).await?.found;
        if let Some(entry) = seen.filter(|entry| entry.flags == LOCK && entry.session.is_some()) {
            return Ok(LockState::new(vec![holder(&entry)], None));
        }
        let permits = Permits::of(&name, &kv::read_all(&self.http, &name.below, None).await?.found);
        let mut living: Vec<Entry> = permits.living.into_values().collect();
        living.sort_by_key(|entry| entry.modify_index);
        Ok(LockState::new(living.iter().map(holder).collect(), None))
    }

    /// One page of a listing. Consul has no pages: each call reads all keys with the prefix, or their names.
    pub(crate) async fn list(self: Arc<Self>, listing: Listing) -> Result<Page> {
        let after = listing.after.as_ref().map_or("", Cursor::as_str);
        let mut remaining = self.held_names(&listing).await?.into_iter().filter(|(name, _)| name.as_str() > after);
        let (mut locks, mut last): (Vec<LockKey>, _) = (Vec::new(), None);
        for (name, lock) in remaining.by_ref().take(listing.limit()) {
            last = Some(name);
            if locks.last() != Some(&lock) {
                locks.push(lock);
            }
        }
        let next = last.filter(|_| remaining.next().is_some()).map(Cursor::new);
        Ok(Page::new(locks, next))
    }

    /// Each held key, with its lock.
    async fn held_names(&self, listing: &Listing) -> Result<Vec<(String, LockKey)>> {
        if !self.http.settings().literal {
            let names = kv::names(&self.http, &without_slashes(&listing.name_prefix()?)).await?;
            return Ok(names.into_iter().filter_map(|name| lock_of(&name).map(|lock| (name, lock))).collect());
        }
        // Literal names do not show which keys are locks, nor which locks are held. So read the entries.
        let entries = kv::read_all(&self.http, &listing.prefix, None).await?.found;
        let lock = |entry: &Entry| match (entry.flags, entry.key.rsplit_once('/')) {
            (LOCK, _) => Some(LockKey(entry.key.as_str().into())),
            (SEMAPHORE, Some((lock, _))) => Some(LockKey(lock.into())),
            _ => None,
        };
        let held = entries.into_iter().filter(|entry| entry.session.is_some() && !entry.key.starts_with("dl1:"));
        Ok(held.filter_map(|entry| lock(&entry).map(|lock| (entry.key, lock))).collect())
    }

    pub(crate) async fn break_hold(self: Arc<Self>, key: LockKey, id: HoldId, record: BreakRecord) -> Result<bool> {
        let name = self.name(&key)?;
        let of_this_id = |entry: &Entry| HoldValue::read(&entry.text()).is_some_and(|hold_value| hold_value.id == id);
        let is_literal = self.http.settings().literal;
        let seen = kv::read(&self.http, &name.lock, None).await?.found;
        if let Some((entry, session)) = seen.as_ref().and_then(held).filter(|(entry, _)| of_this_id(entry)) {
            let end = if is_literal { Op::unlock(&entry.key, session, LOCK) } else { Op::delete(&entry.key) };
            return self.end_with_record(session, vec![Op::held(&entry.key, session), end], id, &record).await;
        }
        let permits = Permits::of(&name, &kv::read_all(&self.http, &name.below, None).await?.found);
        let Some((entry, session)) = permits.living.values().filter_map(held).find(|(entry, _)| of_this_id(entry))
        else {
            return Ok(false);
        };
        let mut ops = vec![Op::held(&entry.key, session), Op::delete(&entry.key)];
        ops.extend(permits.without(&name, session));
        self.end_with_record(session, ops, id, &record).await
    }

    /// Ends a hold and leaves the record, in one transaction. The record has a session of its own: when that ends, Consul
    /// deletes the record.
    async fn end_with_record(
        &self,
        session: &str,
        mut ops: Vec<Op<'_>>,
        id: HoldId,
        record: &BreakRecord,
    ) -> Result<bool> {
        let session_info = session::info(&self.http, session).await?;
        let ttl = session_info
            .and_then(|session_info| session_info.ttl())
            .map_or(MIN_RECORD_TIME, |ttl| ttl.max(MIN_RECORD_TIME));
        let (timer, key) = (self.new_timer(ttl).await?, record_key(id));
        ops.push(Op::lock(&key, &timer, 0, record.as_str()));
        match txn::run(&self.http, &ops).await? {
            TxnOutcome::Done(_) => Ok(true),
            TxnOutcome::Refused(_) => {
                // The lock was freed in between.
                let _ = session::destroy(&self.http, &timer).await;
                Ok(false)
            }
        }
    }

    pub(crate) async fn record_of(self: Arc<Self>, id: HoldId) -> Result<Option<BreakRecord>> {
        let found = kv::read(&self.http, &record_key(id), None).await?.found;
        Ok(found.map(|entry| BreakRecord::from_stored(&entry.text())))
    }
}

fn record_key(id: HoldId) -> String {
    format!("{RECORD_PREFIX}{id}")
}

fn held(entry: &Entry) -> Option<(&Entry, &str)> {
    Some((entry, entry.session.as_deref()?))
}

fn holder(entry: &Entry) -> Holder {
    let Some(hold_value) = HoldValue::read(&entry.text()) else { return Holder::foreign_client(None) };
    Holder::new(hold_value.note).with(|holder| {
        holder.id = Some(hold_value.id);
        holder.slot = hold_value.slot;
        holder.token = Some(entry.modify_index);
    })
}
