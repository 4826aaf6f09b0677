//! How a waiter hears that the keys ahead of it, or its own key, were deleted.

use std::sync::Arc;

use dlock_contract::{Error, Result, Signal, Wake};

use super::connection::Connection;
use super::place::{Ahead, Place, Sight, Until};

/// Ends when enough keys ahead or our own key are deleted. The woken waiter asks again: the key ahead may have been a
/// waiter's, and then another key is ahead now.
pub(super) fn wake(connection: Connection, place: Arc<Place>, revision: i64, ahead: Ahead) -> Wake {
    // Asking again is also what keeps the lease alive while nobody holds a lock on it.
    let ask_by = place.lease.stale_at();
    Wake::on(async move { news(&connection, &place, revision, ahead).await }).ask_by(ask_by)
}

async fn news(connection: &Connection, place: &Place, revision: i64, ahead: Ahead) -> Result<Signal> {
    // From now on, not from the revision that was read: the server serves watches that begin in the past only every
    // 100 ms, and on a busy store that revision is past by now.
    let (mut stream, watches) = match &ahead.until {
        Until::Gone(key) => (connection.watch_both(key, &place.key).await?, 2),
        Until::Fewer { places, .. } => (connection.watch_range(&places.from, &places.to).await?, 1),
    };
    let mut left = if let Until::Fewer { by, .. } = ahead.until { by } else { 1 };
    let (mut created, mut missed) = (0, false);
    loop {
        // If the stream ends, the waiter asks.
        let Ok(Some(message)) = stream.message().await else { return Ok(Signal::Ask) };
        if message.canceled() {
            return cancelled(message.compact_revision(), message.cancel_reason());
        }
        for event in message.events() {
            let ours = event.kv().is_none_or(|key| key.key() == place.key);
            // Younger waiters that leave are no news. The former key is missing if it was compacted meanwhile.
            let is_ahead = watches == 2 || event.prev_kv().is_none_or(|key| key.create_revision() < revision);
            left -= usize::from(is_ahead);
            if ours || left == 0 {
                return Ok(Signal::Ask);
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
                _ => return Ok(Signal::Ask),
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
