//! The transactions that put a claim's key into the queue.

use std::sync::atomic::Ordering;

use dlock_contract::{ErrorKind, Mode, Result};
use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp};

use super::connection::Connection;
use super::fault::Fault;
use super::inspect::note_of;
use super::names::Span;
use super::place::{Parts, Place, Sight, no_stranger};

/// How often an attempt reads the epoch again if other tasks of this process changed it meanwhile.
pub(super) const EPOCH_READS: usize = 8;

impl Place {
    /// Puts the key, at the end of the queue or only if the lock is free, and returns its place.
    pub(super) async fn enter(&self, connection: &Connection, wait: bool) -> Result<Sight, Fault> {
        if let Mode::Permits(most) = self.mode
            && !wait
        {
            // Nothing compares a number of keys. So this enters only if it looks worth it.
            let places = self.line.of(self.mode);
            let found = connection.get(&places.from, oldest(&places)).await?;
            let is_full = found.count() >= i64::from(most.get());
            // One of them may be ours, by an attempt whose answer was lost.
            let is_new = self.is_new();
            if let Some(first) = found.kvs().first().filter(|_| is_full && is_new) {
                return Ok(Sight::Refused(note_of(&self.line, first)));
            }
        }
        // A permit's place is known only after it has entered.
        let joins = wait || matches!(self.mode, Mode::Permits(_));
        for _ in 0..EPOCH_READS {
            let epoch = self.ask_under_epoch();
            let answer = connection.txn(self.entering(joins, epoch)).await?;
            self.known().asked = false;
            let mut parts = Parts::of(&answer);
            if answer.succeeded() {
                let revision = parts.revision;
                self.known().revision = Some(revision);
                return if joins { self.sight(revision, &mut parts) } else { Ok(Sight::First) };
            }
            let (own, now, first) = (parts.first()?, parts.first()?, parts.first()?);
            self.learn_epoch(now.map_or(0, |epoch| epoch.mod_revision()));
            if let Some(own) = own {
                if !self.is_mine(&own) {
                    return Ok(Sight::Refused(note_of(&self.line, &own)));
                }
                // The answer of an earlier attempt was lost.
                self.known().revision = Some(own.create_revision());
                return self.look(connection, own.create_revision()).await;
            }
            for _ in self.line.others(self.mode) {
                if let Some(other) = parts.first()? {
                    no_stranger(&other)?;
                    return Err(other_family());
                }
            }
            if let Some(first) = first.filter(|_| !joins) {
                no_stranger(&first)?;
                return Ok(Sight::Refused(note_of(&self.line, &first)));
            }
        }
        Err(Fault::Refused(ErrorKind::Outage, "too many abandoned attempts of this process at once".into()))
    }

    /// Notes that a transaction is about to leave, which is refused if the epoch is another one than this by then.
    pub(super) fn ask_under_epoch(&self) -> i64 {
        let epoch = self.lease.epoch(self.shard).load(Ordering::Acquire);
        let mut known = self.known();
        // An earlier transaction that may still arrive puts the key with an older revision.
        if !known.asked && !known.unsure {
            known.floor = self.lease.seen();
        }
        known.unsure |= known.asked;
        known.asked = true;
        epoch
    }

    pub(super) fn learn_epoch(&self, revision: i64) {
        self.lease.epoch(self.shard).store(revision, Ordering::Release);
    }

    pub(super) fn same_epoch(&self, epoch: i64) -> Compare {
        Compare::mod_revision(self.lease.epoch_key(self.shard), CompareOp::Equal, epoch)
    }

    pub(super) fn put(&self) -> TxnOp {
        TxnOp::put(self.key.clone(), self.value.as_str(), Some(PutOptions::new().with_lease(self.lease.id)))
    }

    /// Compares that nobody is there whom an attempt without a place in the queue must not overtake.
    pub(super) fn is_free(&self) -> Vec<Compare> {
        match self.mode {
            Mode::Read => {
                let others = self.line.others(self.mode);
                others.iter().chain([&self.line.of(Mode::Write)]).map(Span::is_empty).collect()
            }
            _ => vec![self.line.all().is_empty()],
        }
    }

    fn entering(&self, joins: bool, epoch: i64) -> Txn {
        // The key may be there by an attempt whose answer was lost: then its revision is not that of this transaction.
        let absent = Compare::create_revision(self.key.clone(), CompareOp::Equal, 0);
        let mut when = vec![self.same_epoch(epoch), absent];
        let mut then = vec![self.put()];
        let others = self.line.others(self.mode);
        if joins {
            when.extend(others.iter().map(Span::is_empty));
            then.extend(self.ahead(None));
        } else {
            when.extend(self.is_free());
        }
        let own = TxnOp::get(self.key.clone(), None);
        let now = TxnOp::get(self.lease.epoch_key(self.shard), None);
        // With its value, which is the note, so that the error of a caller that does not wait names the holder.
        let all = self.line.all();
        let first = TxnOp::get(all.from.clone(), Some(oldest(&all)));
        let conflicts = others.iter().map(|span| span.get(|options| options.with_keys_only().with_limit(1)));
        Txn::new().when(when).and_then(then).or_else([own, now, first].into_iter().chain(conflicts).collect::<Vec<_>>())
    }
}

pub(super) fn oldest(span: &Span) -> GetOptions {
    span.options().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1)
}

pub(super) fn other_family() -> Fault {
    let text = "the key holds a lock of another mode, or of another number of permits";
    Fault::Refused(ErrorKind::KeyConflict, text.into())
}
