//! How a waiter gets the lock: it watches the older keys, and its own key, for their deletion.

use std::sync::Arc;

use dlock_contract::{Claim, Error, Result, Signal, Wake};

use super::connection::Connection;
use super::place::{Blocked, Blocker, Place, Position};

/// Ends with the lock once enough older keys are deleted. If our own key is deleted, it ends with [`Signal::Ask`].
pub(super) fn wake(connection: Connection, claim: Arc<Claim>, place: Arc<Place>, blocked: Blocked) -> Wake {
    // The next attempt keeps the lease alive while no hold on it is renewed.
    let ask_by = place.lease.stale_at();
    Wake::on(async move { wait_for_lock(&connection, &claim, &place, blocked).await }).ask_by(ask_by)
}

async fn wait_for_lock(
    connection: &Connection,
    claim: &Arc<Claim>,
    place: &Arc<Place>,
    mut blocked: Blocked,
) -> Result<Signal> {
    let Some(revision) = place.state().revision else { return Ok(Signal::Ask) };
    loop {
        if let Some(signal) = watch_blocker(connection, place, revision, &blocked).await? {
            return Ok(signal);
        }
        // The deleted key may have been a waiter's, so another older key may remain. The read also proves that our own
        // key exists.
        let position = place.read_position(connection, revision).await?;
        match place.take_slot(connection, position).await? {
            // A grant is valid from the last confirmation of the lease. Nobody renews a lease of one hold, so its last
            // confirmation may be old: then only the next attempt, which keeps the lease alive, may grant.
            Position::First if place.lease.shared => return Ok(Signal::Granted(place.granted(claim)?)),
            Position::Behind(next) => blocked = next,
            _ => return Ok(Signal::Ask),
        }
    }
}

/// Waits until enough older keys are deleted. Returns a signal if only a new attempt can continue.
async fn watch_blocker(
    connection: &Connection,
    place: &Place,
    revision: i64,
    blocked: &Blocked,
) -> Result<Option<Signal>> {
    // The watch begins now, and not at the revision that was read. On a busy store that revision is in the past, and the
    // server serves watches that begin in the past only every 100 ms.
    let (mut stream, watches, mut remaining) = match &blocked.blocker {
        Blocker::Key(key) => (connection.watch_both(key, &place.key).await?, 2, 1),
        Blocker::OlderKeys { range, count } => (connection.watch_range(&range.from, &range.to).await?, 1, *count),
    };
    let (mut created, mut missed) = (0, false);
    loop {
        // If the stream ends, the waiter makes an attempt, on another connection if this one is broken.
        let Ok(Some(message)) = stream.message().await else { return Ok(Some(Signal::Ask)) };
        if message.canceled() {
            return cancelled(message.compact_revision(), message.cancel_reason()).map(Some);
        }
        for event in message.events() {
            if event.kv().is_none_or(|key| key.key() == place.key) {
                return Ok(Some(Signal::Ask));
            }
            // A younger key that is deleted changes nothing. If the event lacks the deleted key, because it was
            // compacted, it counts as an older one.
            let is_older = watches == 2 || event.prev_kv().is_none_or(|key| key.create_revision() < revision);
            remaining -= usize::from(is_older);
            if remaining == 0 {
                return Ok(None);
            }
        }
        if message.created() {
            created += 1;
            missed |= message.header().is_none_or(|header| header.revision() > blocked.revision);
        }
        // The store has changed between the read and the watch, and perhaps one of these keys.
        if created == watches && std::mem::take(&mut missed) {
            match place.read_position(connection, revision).await? {
                Position::Behind(still) if still.blocker == blocked.blocker => {}
                _ => return Ok(None),
            }
        }
    }
}

fn cancelled(compacted: i64, reason: &str) -> Result<Signal> {
    if compacted == 0 && !reason.is_empty() {
        return Err(Error::outage(format!("etcd refused a watch: {reason}")));
    }
    Ok(Signal::Ask)
}
