//! Inspection: the holders of a lock, listings of held locks, and breaking a hold.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Value, cmd};
use dlock_contract::{
    BreakRecord, Claim, Cursor, Error, Hold, HoldId, Holder, Inspect, Listing, LockKey, LockState, Page, Result,
};
use dlock_redis::internal::{
    SHORTEST_RECORD, fault, layout, listed_key, lock_pattern, millis, owner_of, record_name, scan_command, scanned,
};
use futures::future::BoxFuture;

use super::holder::note_of;
use super::nodes::majority;
use super::round::{Patience, ask};
use super::store::Redlock;
use super::tally::shortage;

impl Redlock {
    pub(super) async fn state(&self, name: &LockKey) -> Result<LockState> {
        let Some((value, left)) = self.majority_value(name).await? else { return Ok(LockState::default()) };
        if left.is_some() && !layout::is_ours(&value) {
            return Ok(LockState::new(vec![Holder::foreign_client(left)], None));
        }
        let holder = Holder::new(note_of(&value)?).with(|holder| {
            holder.id = owner_of(&value).as_ref().map(HoldId::of);
            holder.lease_left = left;
        });
        // Waiters poll; nobody counts them.
        Ok(LockState::new(vec![holder], None))
    }

    /// Leaves the record on a majority of the nodes, so that the holder finds it.
    async fn leave_record(&self, name: &LockKey, id: HoldId, record: &BreakRecord, left: Duration) -> Result<()> {
        let nodes = self.nodes.len();
        let (record_name, record) = (record_name(name, id), record.clone());
        let mut answers = ask(&self.nodes, 0..nodes, Patience::UNHURRIED, move |node, link| {
            let mut set = cmd("SET");
            set.arg(&record_name).arg(record.as_str()).arg("PX").arg(millis(left.max(SHORTEST_RECORD)));
            async move { node.pipeline(&link, [set]).await }
        })?
        .insist();
        let (mut left, mut unable) = (0, Vec::new());
        while left < majority(nodes) {
            match answers.next().await {
                Some((_, Ok(values))) => match &values[..] {
                    [Value::Okay] => left += 1,
                    other => unable.push(fault::unexpected(other.first().unwrap_or(&Value::Nil)).into()),
                },
                Some((_, Err(why))) => unable.push(why),
                None => return Err(shortage(nodes, &unable).error),
            }
        }
        Ok(())
    }
}

impl Inspect for Redlock {
    /// One node after another. A lock is named once for each node that has it.
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move {
            let nodes = self.nodes.len();
            let (number, cursor) = place_of(listing.after.as_ref(), nodes)?;
            let pattern = lock_pattern(listing, self.is_literal)?;
            let scan = scan_command(cursor, &pattern, listing);
            let mut answers = ask(&self.nodes, number..=number, Patience::UNHURRIED, move |node, link| {
                let scan = scan.clone();
                async move { node.pipeline(&link, [scan]).await }
            })?;
            let mut next_node = Some((number + 1, 0)).filter(|(number, _)| *number < nodes);
            let mut names = Vec::new();
            // If one node does not answer, the others do: a lock is on most of them.
            if let Some((_, Ok(values))) = answers.next().await {
                let (next, found) = scanned(values.first().unwrap_or(&Value::Nil))?;
                names = found;
                if next != 0 {
                    next_node = Some((number, next));
                }
            }
            let locks = names.into_iter().filter_map(|name| listed_key(name, self.is_literal)).collect();
            Ok(Page::new(locks, next_node.map(|(number, cursor)| Cursor::new(format!("{number}.{cursor}")))))
        })
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let name = self.named(key)?;
            let Some((value, left)) = self.majority_value(&name).await? else { return Ok(false) };
            let Some(owner) = owner_of(&value).filter(|owner| HoldId::of(owner) == id) else { return Ok(false) };
            self.leave_record(&name, id, record, left.unwrap_or_default()).await?;
            // By the owner alone, because the round is not known.
            let claim = Claim::plain(name, owner, SHORTEST_RECORD, note_of(&value)?);
            self.give_up(&Arc::new(claim)).await?;
            Ok(true)
        })
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        Box::pin(async move {
            let name = record_name(&self.named(&hold.claim.key)?, HoldId::of(&hold.claim.owner));
            let mut answers = ask(&self.nodes, 0..self.nodes.len(), Patience::UNHURRIED, move |node, link| {
                let mut get = cmd("GET");
                get.arg(&name);
                async move { node.pipeline(&link, [get]).await }
            })?;
            while let Some((_, answer)) = answers.next().await {
                if let Ok([Value::BulkString(record)]) = answer.as_deref() {
                    return Ok(Some(BreakRecord::from_stored(&String::from_utf8_lossy(record))));
                }
            }
            Ok(None)
        })
    }
}

/// The node that is scanned, and how far it has come.
fn place_of(cursor: Option<&Cursor>, nodes: usize) -> Result<(usize, u64)> {
    let Some(cursor) = cursor else { return Ok((0, 0)) };
    let (node, scanned) = cursor.as_str().split_once('.').unwrap_or_default();
    let place = node.parse().ok().filter(|node| *node < nodes).zip(scanned.parse().ok());
    place.ok_or_else(|| Error::config("after", "the cursor was not given by this store"))
}
