//! The queue of a lock in the store, whose first claim gets the lock when it is free.

use tokio::sync::oneshot;

use super::{Grant, HoldOf, Store};

/// A claim in the queue.
pub(super) struct Queued {
    pub(super) hold: HoldOf,
    /// Its caller does not wait for longer.
    pub(super) ends: u64,
    news: oneshot::Sender<Pushed>,
}

/// A grant that the store tells by itself.
#[derive(Clone, Copy)]
pub(crate) struct Pushed {
    pub(crate) grant: Grant,
    /// When the store granted it.
    pub(crate) at: u64,
}

/// A grant on its way to its process; without one its news end.
type Push = (HoldOf, oneshot::Sender<Pushed>, Option<Pushed>);

impl Store {
    /// Puts a claim into the queue, or tells its place another way to its news.
    pub(crate) fn enqueue(&mut self, hold: HoldOf, ends: u64) -> oneshot::Receiver<Pushed> {
        let (news, receiver) = oneshot::channel();
        let queue = &mut self.locks.entry(hold.key).or_default().queue;
        match queue.iter_mut().find(|queued| queued.hold.owner == hold.owner) {
            Some(queued) => (queued.news, queued.ends) = (news, ends),
            None => queue.push_back(Queued { hold, ends, news }),
        }
        receiver
    }

    /// Grants the lock to the first ones of its queue that it has room for. Also gives the time at which to look again.
    pub(crate) fn serve(&mut self, key: u32, now: u64) -> (Vec<Push>, Option<u64>) {
        let (lie, is_guarded) = (self.lie, now < self.guard_until);
        let mut pushes = Vec::new();
        loop {
            let (lock, sessions) = self.lock(key, now);
            let ends = lock.holders.iter().map(|holder| sessions.end_of(holder)).min();
            let Some(first) = lock.queue.front().map(|queued| queued.hold) else { return (pushes, None) };
            if lock.has_run(lie, first, now)
                && let Some(Queued { hold, news, .. }) = lock.queue.pop_front()
            {
                // It asks again, and hears it.
                pushes.push((hold, news, None));
                continue;
            }
            if is_guarded || !lock.admits(lie, first.mode) {
                return (pushes, ends);
            }
            let Some(Queued { hold, news, .. }) = lock.queue.pop_front() else { return (pushes, None) };
            pushes.push((hold, news, Some(Pushed { grant: self.grant(hold, now), at: now })));
        }
    }
}
