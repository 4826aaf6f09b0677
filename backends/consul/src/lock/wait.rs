//! How a waiter learns that the lock is free: by a blocking query on the lock's key, or on the keys of its permits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_contract::{BootInstant, Error, Note, Result, Signal, Wake};
use dlock_store::background;
use tokio::sync::oneshot;

use crate::api::kv;
use crate::lock::claim_state::ClaimState;
use crate::lock::name::Name;
use crate::lock::permits::Permits;
use crate::lock::shared::Shared;

/// How long one query waits for a change. The engine asks again before that.
const QUERY_TIME: Duration = Duration::from_secs(10);

/// The event that a waiter waits for.
pub(crate) enum Awaited {
    /// No session holds this key.
    Lock(Arc<ClaimState>),
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
        let news = async move {
            let (sender, news) = oneshot::channel();
            background()?.spawn(async move {
                let signal = shared.wait_for_change(awaited, index, &sender).await;
                drop(query_slot);
                let _ = sender.send(signal);
            });
            news.await.unwrap_or_else(|_| Err(Error::outage("dlock's own thread has ended")))
        };
        Wake::on(news).held_by(held_by)
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
        caller: &oneshot::Sender<Result<Signal>>,
    ) -> Result<Signal> {
        // A query goes on when its caller has gone: the agent counts its connection until the query ends, even if the
        // connection is closed.
        while !caller.is_closed() {
            let (is_free, now) = match &awaited {
                Awaited::Lock(state) => {
                    let mut session = state.session.lock().await;
                    if let Some(present) = &mut *session
                        && !self.keep(present).await?
                    {
                        *session = None;
                    }
                    drop(session);
                    // So the session is fresh when the lock becomes free, and the attempt is one request.
                    let since = Some((index, QUERY_TIME.min(state.ttl / 4)));
                    let seen = kv::read(&self.http, &state.name.lock, since).await?;
                    let now = seen.index;
                    let is_free = seen.found.as_ref().is_none_or(|entry| entry.session.is_none());
                    *state.free() = Some(seen).filter(|_| is_free);
                    let is_marked = self.http.settings().literal || state.is_marked.load(Ordering::Relaxed);
                    if !is_free && now > index && !is_marked {
                        state.is_passed_over.store(true, Ordering::Relaxed);
                        return Ok(Signal::Ask);
                    }
                    (is_free, now)
                }
                Awaited::Permits(name, limit) => {
                    let since = Some((index, QUERY_TIME));
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
        Ok(Signal::Ask)
    }
}
