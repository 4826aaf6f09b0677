//! Another server takes over, and the server's clock jumps.

use std::time::Duration;

use super::{Holder, KEPT, Start, Store, nanos};

/// A lock, as another server has heard of it.
pub(super) struct Copied {
    holders: Vec<Holder>,
    last_token: u64,
    start: Option<Start>,
}

impl Store {
    /// Another server hears of all that was done until now.
    pub(crate) fn copy(&mut self, now: u64) {
        for key in self.keys() {
            let (lock, _) = self.lock(key, now);
            let copied =
                Copied { holders: lock.holders.clone(), last_token: lock.last_token, start: lock.start.clone() };
            self.copied.insert(key, copied);
        }
    }

    /// That server takes over. Returns the holds that it does not know, or whose last renewals it does not know: key and token.
    pub(crate) fn fail_over(&mut self, now: u64) -> Vec<(u32, u64)> {
        let mut forgotten = Vec::new();
        let mut copied = std::mem::take(&mut self.copied);
        for key in self.keys() {
            let (lock, _) = self.lock(key, now);
            let copied = copied.remove(&key);
            let (holders, last_token, start) =
                copied.map_or((Vec::new(), 0, None), |copied| (copied.holders, copied.last_token, copied.start));
            for old in &lock.holders {
                let is_known =
                    |new: &Holder| (new.owner, new.token, new.expires) == (old.owner, old.token, old.expires);
                if !holders.iter().any(is_known) {
                    forgotten.push((key, old.token));
                }
            }
            lock.listeners.clear();
            lock.queue.clear();
            (lock.holders, lock.last_token, lock.start) = (holders, last_token, start);
        }
        forgotten
    }

    /// The clock jumps, and leases end earlier or later. Returns the holds that may end too early: key and token.
    pub(crate) fn clock_jumps(&mut self, by: Duration, forward: bool, now: u64) -> Vec<(u32, u64)> {
        let (by, mut ended) = (nanos(by), Vec::new());
        for key in self.keys() {
            for holder in self.lock(key, now).0.holders.iter_mut().filter(|holder| holder.owner != KEPT) {
                if forward {
                    holder.expires = holder.expires.saturating_sub(by);
                    ended.push((key, holder.token));
                } else {
                    holder.expires += by;
                }
            }
        }
        ended
    }
}
