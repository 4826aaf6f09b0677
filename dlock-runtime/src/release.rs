//! Giving a lock back: in place when all goes well, on our thread when the guard was dropped or the store is silent.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Claim, Released};
use crate::background::background;
use crate::error::{LossCause, Result};
use crate::observe::Event;
use crate::store::{Store, request_bound};
use crate::tenure::Tenure;
use crate::wait::full_jitter;

/// How a release in place went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Ours to the end, and free now.
    Released,
    /// The store says that it had gone to somebody else, or to nobody, before.
    NotOwner,
    /// The store did not answer; our thread goes on trying, and the ttl ends it at the latest.
    Unknown,
}

/// Releases where the caller stands. If the returned future is dropped, our thread does it.
pub(crate) async fn in_place(tenure: Arc<Tenure>) -> Outcome {
    let late = Late(Some(tenure));
    let Some(tenure) = late.0.as_ref() else { return Outcome::Unknown };
    tenure.shared.watchdog.remove(tenure);
    let ours = tenure.end();
    let answer = once(tenure).await;
    let outcome = match &answer {
        Ok(Released::Released) => Outcome::Released,
        Ok(Released::NotOwner) => Outcome::NotOwner,
        Err(_) => Outcome::Unknown,
    };
    if ours && outcome == Outcome::NotOwner {
        let held = tenure.shared.clock.now().since(tenure.since);
        tenure.shared.events.tell(&tenure.label, &Event::Lost { cause: LossCause::Store, held });
    }
    match answer {
        Err(error) => {
            tenure.shared.events.tell(&tenure.label, &Event::ReleaseFailed { reason: error.to_string().into() });
            // `late` goes out of scope and our thread tries again.
        }
        Ok(_) => late.done(),
    }
    outcome
}

/// Releases on our thread; for guards that are dropped, and for holds that the store would keep after their loss.
pub(crate) fn later(tenure: Arc<Tenure>) {
    tenure.shared.watchdog.remove(&tenure);
    tenure.end();
    let job = tenure.shared.jobs.begin();
    let Ok(background) = background() else {
        // Without our thread only the ttl is left; neighbours must not wait for it here.
        tenure.pass_turn();
        return;
    };
    background.spawn(async move {
        let _job = job;
        let mut told = false;
        for attempt in 0_u32.. {
            let Err(error) = once(&tenure).await else { break };
            if !std::mem::replace(&mut told, true) {
                tenure.shared.events.send(&tenure.label, Event::ReleaseFailed { reason: error.to_string().into() });
            }
            let now = tenure.shared.clock.now();
            // A lease that ends by itself needs no help beyond its end; a shared one is kept alive by its neighbours.
            let over = tenure.store.backend.capabilities().expires_alone && now >= tenure.deadline();
            if over || !error.is_retryable() || tenure.shared.jobs.given_up() {
                break;
            }
            tenure.shared.clock.sleep_until(now.after(full_jitter(attempt, STEP, MOST))).await;
        }
        tenure.pass_turn();
    });
}

const STEP: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(5);

async fn once(tenure: &Arc<Tenure>) -> Result<Released> {
    let asked = tenure.clone();
    let request = async move { asked.store.backend.release(&asked.hold).await };
    // The caller waits for this: less patience than an acquisition has.
    let bound = request_bound(tenure.hold.claim.ttl).min(Duration::from_secs(2));
    let released = tenure.store.ask(&tenure.shared.clock, bound, request).await?;
    tenure.pass_turn();
    Ok(released)
}

/// Hands the release to our thread unless it was done.
struct Late(Option<Arc<Tenure>>);

impl Late {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        if let Some(tenure) = self.0.take() {
            later(tenure);
        }
    }
}

/// Ends an acquisition of unknown outcome on our thread, so that nothing of it is left in the store.
pub(crate) fn abandon_later(
    shared: &Arc<crate::registry::Shared>,
    store: Arc<Store>,
    claim: Arc<Claim>,
    keep: Box<dyn Send>,
) {
    let job = shared.jobs.begin();
    let shared = shared.clone();
    let Ok(background) = background() else { return };
    background.spawn(async move {
        // The local turn: a neighbour that asked before this would meet our own leftovers.
        let _keep = keep;
        let _job = job;
        let gone = shared.clock.now().after(claim.ttl);
        for attempt in 0_u32.. {
            let (backend, asked) = (store.backend.clone(), claim.clone());
            let request = async move { backend.abandon(&asked).await };
            let Err(error) = store.ask(&shared.clock, request_bound(claim.ttl), request).await else { return };
            let now = shared.clock.now();
            let over = store.backend.capabilities().expires_alone && now >= gone;
            if over || !error.is_retryable() || shared.jobs.given_up() {
                return;
            }
            shared.clock.sleep_until(now.after(full_jitter(attempt, STEP, MOST))).await;
        }
    });
}
