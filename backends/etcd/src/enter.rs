//! The transactions that put a claim's key into the queue.

use std::sync::atomic::Ordering;

use dlock_contract::{ErrorKind, Mode, Result};
use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp};

use super::combine::Scope;
use super::connection::Connection;
use super::fault::Fault;
use super::key_range::KeyRange;
use super::names::note_of;
use super::place::Place;
use super::position::{Position, check_has_lease};

/// How often an attempt reads the epoch again if other tasks of this process changed it meanwhile.
pub(super) const EPOCH_READS: usize = 8;

impl Place {
    /// Puts the key and returns its position. With `wait` the key joins the end of the queue. Otherwise it is put only if
    /// the lock is free.
    pub(super) async fn enter(&self, connection: &Connection, wait: bool) -> Result<Position, Fault> {
        if let Mode::Permits(most) = self.mode
            && !wait
        {
            // A transaction cannot compare a number of keys. So count them first, and enter only if a permit seems free.
            let places = self.range.contenders(self.mode);
            let found = connection.get(&places.from, oldest(&places)).await?;
            let is_full = found.count() >= i64::from(most.get());
            // If the answer to an earlier attempt was lost, one of these keys may be ours.
            let is_new = self.is_new();
            if let Some(first) = found.kvs().first().filter(|_| is_full && is_new) {
                return Ok(Position::Refused(note_of(&self.range, first)));
            }
        }
        // Whether a permit is granted is known only after its key is in the queue.
        let joins = wait || matches!(self.mode, Mode::Permits(_));
        for _ in 0..EPOCH_READS {
            let epoch = self.begin_entry();
            let mut answers = connection.txn_of(Scope::of(&self.range), self.entry_txn(joins, epoch)).await?;
            self.state().entering = false;
            if answers.succeeded {
                let revision = answers.revision;
                self.state().revision = Some(revision);
                return if joins { self.position(revision, &mut answers) } else { Ok(Position::First) };
            }
            let (own, now, first) = (answers.first_key()?, answers.first_key()?, answers.first_key()?);
            self.note_epoch(now.map_or(0, |epoch| epoch.mod_revision()));
            if let Some(own) = own {
                if !self.is_mine(&own) {
                    return Ok(Position::Refused(note_of(&self.range, &own)));
                }
                // An earlier attempt put the key, and its answer was lost.
                self.state().revision = Some(own.create_revision());
                return self.read_position(connection, own.create_revision()).await;
            }
            for _ in self.range.conflicting(self.mode) {
                if let Some(other) = answers.first_key()? {
                    check_has_lease(&other)?;
                    return Err(mode_conflict());
                }
            }
            if let Some(first) = first.filter(|_| !joins) {
                check_has_lease(&first)?;
                return Ok(Position::Refused(note_of(&self.range, &first)));
            }
        }
        Err(Fault::Refused(ErrorKind::Outage, "too many abandoned attempts of this process at once".into()))
    }

    /// Records that a transaction that puts the key is about to leave, and returns the epoch that it must compare.
    pub(super) fn begin_entry(&self) -> i64 {
        let epoch = self.lease.epoch(self.shard).load(Ordering::Acquire);
        let mut state = self.state();
        // If an earlier transaction may still arrive, the key may get an older revision than those seen since then.
        if !state.entering && !state.in_doubt {
            state.seen_before = self.lease.seen();
        }
        state.in_doubt |= state.entering;
        state.entering = true;
        epoch
    }

    pub(super) fn note_epoch(&self, revision: i64) {
        self.lease.epoch(self.shard).store(revision, Ordering::Release);
    }

    pub(super) fn compare_epoch(&self, epoch: i64) -> Compare {
        Compare::mod_revision(self.lease.epoch_key(self.shard), CompareOp::Equal, epoch)
    }

    pub(super) fn put(&self) -> TxnOp {
        TxnOp::put(self.key.clone(), self.value.as_str(), Some(PutOptions::new().with_lease(self.lease.id)))
    }

    /// Compares that no key is there which an attempt without a place in the queue must not overtake.
    pub(super) fn is_free(&self) -> Vec<Compare> {
        match self.mode {
            Mode::Read => {
                let others = self.range.conflicting(self.mode);
                others.iter().chain([&self.range.contenders(Mode::Write)]).map(KeyRange::is_empty).collect()
            }
            _ => vec![self.range.all().is_empty()],
        }
    }

    fn entry_txn(&self, joins: bool, epoch: i64) -> Txn {
        // An earlier attempt whose answer was lost may have put the key. Then its revision is not this transaction's.
        let absent = Compare::create_revision(self.key.clone(), CompareOp::Equal, 0);
        let others = self.range.conflicting(self.mode);
        let (mut when, mut then) = (Vec::with_capacity(4), Vec::with_capacity(3));
        when.extend([self.compare_epoch(epoch), absent]);
        then.push(self.put());
        if joins {
            when.extend(others.iter().map(KeyRange::is_empty));
            then.extend(self.queue_reads(None));
        } else {
            when.extend(self.is_free());
        }
        let own = TxnOp::get(self.key.clone(), None);
        let now = TxnOp::get(self.lease.epoch_key(self.shard), None);
        // With its value, which has the note: the error of a caller that does not wait names the holder.
        // A reader that does not wait is refused by a writer alone.
        let in_the_way = if self.mode == Mode::Read { self.range.contenders(Mode::Write) } else { self.range.all() };
        let first = TxnOp::get(in_the_way.from.clone(), Some(oldest(&in_the_way)));
        let conflicts = others.iter().map(|key_range| key_range.get(|options| options.with_keys_only().with_limit(1)));
        Txn::new().when(when).and_then(then).or_else([own, now, first].into_iter().chain(conflicts).collect::<Vec<_>>())
    }
}

pub(super) fn oldest(key_range: &KeyRange) -> GetOptions {
    key_range.options().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1)
}

pub(super) fn mode_conflict() -> Fault {
    let text = "the key holds a lock of another mode, or of another number of permits";
    Fault::Refused(ErrorKind::KeyConflict, text.into())
}
