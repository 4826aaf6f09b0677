//! How a waiter gets the lock: it watches older keys, and its own key, for their deletion.
//!
//! A waiter that is far behind watches one older key. When that is deleted, it reads the queue again. A waiter that is
//! almost in front watches all keys of the lock, and counts the deletions of the older ones. Then the last of them is the
//! grant, without a read: the server reports the deletions in one range in their order, so if our own key had been deleted
//! before, the waiter would know it.

use std::sync::Arc;

use dlock_contract::{Claim, Error, Mode, Result, Signal, Wake};
use etcd_client::WatchResponse;

use super::connection::Connection;
use super::place::Place;
use super::position::{Blocked, Blocker, Position};

/// Ends with the lock once enough older keys are deleted. If our own key is deleted, it ends with [`Signal::Ask`].
pub(super) fn wake(connection: Connection, claim: Arc<Claim>, place: Arc<Place>, blocked: Blocked) -> Wake {
    // The next attempt keeps the lease alive while no hold on it is renewed.
    let ask_by = place.lease.stale_at();
    Wake::on(async move { wait_for_lock(&connection, &claim, &place, blocked).await }).ask_by(ask_by)
}

/// The news of a waiter's watch.
enum News {
    /// The place is there now.
    At(Position),
    /// Enough keys were deleted to read the queue again.
    Read,
    /// Only a new attempt can continue.
    Ask,
}

async fn wait_for_lock(
    connection: &Connection,
    claim: &Arc<Claim>,
    place: &Arc<Place>,
    mut blocked: Blocked,
) -> Result<Signal> {
    let Some(revision) = place.state().revision else { return Ok(Signal::Ask) };
    loop {
        let position = match watch(connection, place, revision, &mut blocked).await? {
            News::At(position) => position,
            // The deleted key may have been a waiter's, so another older key may remain. The read also proves that our
            // own key exists.
            News::Read => place.read_position(connection, revision).await?,
            News::Ask => return Ok(Signal::Ask),
        };
        match place.take_slot(connection, position).await? {
            // A grant is valid from the last confirmation of the lease. Nobody renews a lease of one hold, so its last
            // confirmation may be old: then only the next attempt, which keeps the lease alive, may grant.
            Position::First if place.lease.shared => return Ok(Signal::Granted(place.granted(claim)?)),
            Position::Behind(next) => blocked = next,
            _ => return Ok(Signal::Ask),
        }
    }
}

async fn watch(connection: &Connection, place: &Place, revision: i64, blocked: &mut Blocked) -> Result<News> {
    // The watch begins now, and not at the revision that was read. On a busy store that revision is in the past, and the
    // server serves watches that begin in the past only every 100 ms.
    let (mut stream, watches) = match &blocked.blocker {
        Blocker::Key(key) => (connection.watch_both(key, &place.key).await?, 2),
        Blocker::Keys { range, .. } => (connection.watch_range(range).await?, 1),
    };
    let (mut created, mut missed) = (0, false);
    loop {
        // If the stream ends, the waiter makes an attempt, on another connection if this one is broken.
        let Ok(Some(message)) = stream.message().await else { return Ok(News::Ask) };
        if message.canceled() {
            return cancelled(message.compact_revision(), message.cancel_reason());
        }
        if let Some(news) = blocked.news(place, &message) {
            return Ok(news);
        }
        if message.created() {
            created += 1;
            missed |= message.header().is_none_or(|header| header.revision() > blocked.revision);
        }
        // The store has changed between the read and the watch, and perhaps one of these keys.
        if created == watches && std::mem::take(&mut missed) {
            match place.read_position(connection, revision).await? {
                Position::Behind(still) if still.blocker.is_watched_as(&blocked.blocker) => *blocked = still,
                position => return Ok(News::At(position)),
            }
        }
    }
}

impl Blocked {
    /// The meaning of this message's deletions for the waiter.
    fn news(&mut self, place: &Place, message: &WatchResponse) -> Option<News> {
        // Events from before the queue was read are known already.
        let deleted = || message.events().iter().filter_map(|event| event.kv());
        let deleted = || deleted().filter(|key| key.mod_revision() > self.revision);
        // The waiter's own key is gone. Even if the last older key was deleted first, the lock was held for a moment
        // only.
        if deleted().any(|key| key.key() == place.key) {
            return Some(News::Ask);
        }
        match &mut self.blocker {
            Blocker::Key(blocker) => deleted().any(|key| key.key() == blocker.as_slice()).then_some(News::Read),
            Blocker::Keys { keys, count, .. } => {
                // Each name counts once. A key that was put again is younger than the waiter's key.
                *count = count.saturating_sub(deleted().filter(|key| keys.remove(key.key())).count());
                (*count == 0).then_some(match place.mode {
                    // A permit also needs a slot.
                    Mode::Permits(_) => News::Read,
                    _ => News::At(Position::First),
                })
            }
        }
    }
}

impl Blocker {
    /// Whether the same watch reports the deletion of both.
    fn is_watched_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key(one), Self::Key(other)) => one == other,
            (Self::Keys { range: one, .. }, Self::Keys { range: other, .. }) => one == other,
            _ => false,
        }
    }
}

fn cancelled(compacted: i64, reason: &str) -> Result<News> {
    if compacted == 0 && !reason.is_empty() {
        return Err(Error::outage(format!("etcd refused a watch: {reason}")));
    }
    Ok(News::Ask)
}
