//! How a waiter gets the lock: it watches the keys ahead of it and its own key for their deletion.

use std::sync::Arc;

use dlock_contract::{Claim, Error, Result, Signal, Wake};

use super::connection::Connection;
use super::place::{Ahead, Place, Sight, Until};

/// Ends with the lock, once enough keys ahead are deleted. It also ends if our own key is deleted: then the waiter asks.
pub(super) fn wake(connection: Connection, claim: Arc<Claim>, place: Arc<Place>, ahead: Ahead) -> Wake {
    // Asking again is also what keeps the lease alive while nobody holds a lock on it.
    let ask_by = place.lease.stale_at();
    Wake::on(async move { news(&connection, &claim, &place, ahead).await }).ask_by(ask_by)
}

async fn news(connection: &Connection, claim: &Arc<Claim>, place: &Arc<Place>, mut ahead: Ahead) -> Result<Signal> {
    let Some(revision) = place.known().revision else { return Ok(Signal::Ask) };
    loop {
        if let Some(signal) = watch(connection, place, revision, &ahead).await? {
            return Ok(signal);
        }
        // The key ahead may have been a waiter's, and then another key is ahead now. The read also proves that our own
        // key exists.
        let sight = place.look(connection, revision).await?;
        match place.settle(connection, sight).await? {
            // What is granted runs from the last confirmation of the lease. Of one that nobody renews, that may be long
            // ago: the next attempt keeps it alive.
            Sight::First if place.lease.shared => return Ok(Signal::Granted(place.granted(claim)?)),
            Sight::Behind(next) => ahead = next,
            _ => return Ok(Signal::Ask),
        }
    }
}

/// Waits until it is worth looking again. Gives a signal if only an attempt can go on.
async fn watch(connection: &Connection, place: &Place, revision: i64, ahead: &Ahead) -> Result<Option<Signal>> {
    // From now on, not from the revision that was read: the server serves watches that begin in the past only every
    // 100 ms, and on a busy store that revision is past by now.
    let (mut stream, watches, mut left) = match &ahead.until {
        Until::Gone(key) => (connection.watch_both(key, &place.key).await?, 2, 1),
        Until::Fewer { places, by } => (connection.watch_range(&places.from, &places.to).await?, 1, *by),
    };
    let (mut created, mut missed) = (0, false);
    loop {
        // If the stream ends, the waiter asks, over another connection if this one is broken.
        let Ok(Some(message)) = stream.message().await else { return Ok(Some(Signal::Ask)) };
        if message.canceled() {
            return cancelled(message.compact_revision(), message.cancel_reason()).map(Some);
        }
        for event in message.events() {
            if event.kv().is_none_or(|key| key.key() == place.key) {
                return Ok(Some(Signal::Ask));
            }
            // Younger waiters that leave are no news. The former key is missing if it was compacted meanwhile.
            let is_ahead = watches == 2 || event.prev_kv().is_none_or(|key| key.create_revision() < revision);
            left -= usize::from(is_ahead);
            if left == 0 {
                return Ok(None);
            }
        }
        if message.created() {
            created += 1;
            missed |= message.header().is_none_or(|header| header.revision() > ahead.seen);
        }
        // Something changed between the read and the watch. It may have been one of these keys.
        if created == watches && std::mem::take(&mut missed) {
            match place.look(connection, revision).await? {
                Sight::Behind(still) if still.until == ahead.until => {}
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
