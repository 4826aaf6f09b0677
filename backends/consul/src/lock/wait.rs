//! How a waiter hears of a free lock: by one blocking query on the lock's key, or on the keys of its permits.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::engine::background;
use dlock_contract::{BootInstant, Note, Result, Signal, Wake};
use tokio::sync::OwnedSemaphorePermit;

use crate::api::kv;
use crate::lock::locks::Locks;
use crate::lock::name::Name;
use crate::lock::permits::Permits;

/// How long one query waits for a change. The engine asks again before that.
const WAIT: Duration = Duration::from_secs(10);

/// What has to become free.
pub(crate) enum Awaited {
    /// This key.
    Lock(String),
    /// One of so many permits of this lock.
    Permits(Name, u32),
}

impl Locks {
    /// Waits for a change since this index.
    pub(crate) fn wake(self: &Arc<Self>, awaited: Awaited, index: u64, held_by: Option<Note>) -> Wake {
        // An agent takes a limited number of connections from one address.
        let Ok(slot) = self.waiters.clone().try_acquire_owned() else { return self.ask_again_soon().held_by(held_by) };
        let locks = self.clone();
        Wake::on(async move { background()?.run(locks.news(awaited, index, slot)).await? }).held_by(held_by)
    }

    /// Nobody will tell when the lock can be had: the caller asks again after a random pause.
    pub(crate) fn ask_again_soon(&self) -> Wake {
        let most = (self.http.settings().lock_delay / 8).clamp(Duration::from_millis(50), Duration::from_secs(1));
        Wake::poll().ask_by(self.soon(most))
    }

    fn soon(&self, most: Duration) -> BootInstant {
        self.http.clock().now().after(most.mul_f64(0.5 + fastrand::f64() / 2.0))
    }

    async fn news(self: Arc<Self>, awaited: Awaited, mut index: u64, _slot: OwnedSemaphorePermit) -> Result<Signal> {
        loop {
            let since = Some((index, WAIT));
            let (is_free, now) = match &awaited {
                Awaited::Lock(key) => {
                    let seen = kv::read(&self.http, key, since).await?;
                    (seen.found.is_none_or(|entry| entry.session.is_none()), seen.index)
                }
                Awaited::Permits(name, limit) => {
                    let seen = kv::read_all(&self.http, &name.below, since).await?;
                    (Permits::of(name, &seen.found).living.len() < *limit as usize, seen.index)
                }
            };
            // An index that goes back is another state, in which the lock has to be looked at anew.
            if is_free || now < index {
                return Ok(Signal::Ask);
            }
            index = now;
        }
    }
}
