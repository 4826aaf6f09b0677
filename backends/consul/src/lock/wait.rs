//! How a waiter learns that the lock is free: by a blocking query on the lock's key, or on the keys of its permits.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::engine::background;
use dlock_contract::{BootInstant, Note, Result, Signal, Wake};
use tokio::sync::OwnedSemaphorePermit;

use crate::api::kv;
use crate::lock::name::Name;
use crate::lock::permits::Permits;
use crate::lock::shared::Shared;

/// How long one query waits for a change. The engine asks again before that.
const WAIT: Duration = Duration::from_secs(10);

/// The event that a waiter waits for.
pub(crate) enum Awaited {
    /// No session holds this key.
    Lock(String),
    /// Fewer holders than this number of permits.
    Permits(Name, u32),
}

impl Shared {
    /// A wake that ends after a change since this index.
    pub(crate) fn wake(self: &Arc<Self>, awaited: Awaited, index: u64, held_by: Option<Note>) -> Wake {
        // An agent accepts a limited number of connections from one address.
        let Ok(query_slot) = self.waiters.clone().try_acquire_owned() else {
            return self.ask_again_soon().held_by(held_by);
        };
        let shared = self.clone();
        Wake::on(async move { background()?.run(shared.wait_for_change(awaited, index, query_slot)).await? })
            .held_by(held_by)
    }

    /// A wake without news: the caller asks again after a random pause of up to a second.
    pub(crate) fn ask_again_soon(&self) -> Wake {
        let longest = (self.http.settings().lock_delay / 8).clamp(Duration::from_millis(50), Duration::from_secs(1));
        Wake::poll().ask_by(self.random_time_within(longest))
    }

    fn random_time_within(&self, longest: Duration) -> BootInstant {
        self.http.clock().now().after(longest.mul_f64(0.5 + fastrand::f64() / 2.0))
    }

    async fn wait_for_change(
        self: Arc<Self>,
        awaited: Awaited,
        mut index: u64,
        _query_slot: OwnedSemaphorePermit,
    ) -> Result<Signal> {
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
            // An index that went back belongs to another state, such as a restored snapshot. Then the waiter must ask.
            if is_free || now < index {
                return Ok(Signal::Ask);
            }
            index = now;
        }
    }
}
