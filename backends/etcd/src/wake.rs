//! How a waiter hears that the key ahead of it, or its own key, was deleted.

use std::sync::Arc;

use dlock_contract::{Error, Result, Signal, Wake};

use super::connection::Connection;
use super::line::{Ahead, Place, Sight};

/// Ends when the key ahead or our own key is deleted. The woken waiter asks again: the key ahead may have been a
/// waiter's, and then another key is ahead now.
pub(super) fn wake(connection: Connection, place: Arc<Place>, revision: i64, ahead: Ahead) -> Wake {
    // Asking again is also what keeps the lease alive while nobody holds a lock on it.
    let ask_by = place.lease.stale_at();
    Wake::on(async move { news(&connection, &place, revision, ahead).await }).ask_by(ask_by)
}

async fn news(connection: &Connection, place: &Place, revision: i64, ahead: Ahead) -> Result<Signal> {
    // From now on, not from the revision that was read: the server serves watches that begin in the past only every
    // 100 ms, and on a busy store that revision is past by now.
    let mut stream = connection.watch_both(&ahead.key, &place.key).await?;
    let (mut created, mut missed) = (0, false);
    loop {
        // If the stream ends, the waiter asks.
        let Ok(Some(message)) = stream.message().await else { return Ok(Signal::Ask) };
        if message.canceled() {
            return cancelled(message.compact_revision(), message.cancel_reason());
        }
        if !message.events().is_empty() {
            return Ok(Signal::Ask);
        }
        if message.created() {
            created += 1;
            missed |= message.header().is_none_or(|header| header.revision() > ahead.seen);
        }
        // Something changed between the read and the watch. It may have been one of these two keys.
        if created == 2 && std::mem::take(&mut missed) {
            match place.look(connection, revision).await? {
                Sight::Behind(still) if still.key == ahead.key => {}
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
