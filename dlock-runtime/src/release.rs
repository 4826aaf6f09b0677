//! Giving a lock back: in place when all goes well, on our thread when the guard was dropped or the store is silent.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Claim, Released};
use crate::background::{background, is_forked};
use crate::carry::Carry;
use crate::closing::Job;
use crate::cohort;
use crate::error::{Error, LossCause, Result};
use crate::observe::Event;
use crate::registry::Shared;
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
    // A shutdown waits for this too.
    let asked = tenure.clone();
    let _call = asked.shared.jobs.call();
    let ours = tenure.end();
    tenure.shared.watchdog.remove(&tenure);
    let mut late = Late { tenure: Some(tenure), tell: if ours { Tell::Again } else { Tell::Nothing } };
    let Some(tenure) = late.tenure.as_ref() else { return Outcome::Unknown };
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
            // `late` goes out of scope and our thread tries again; that the hold has ended is told here.
            late.tell = Tell::Nothing;
        }
        Ok(_) => late.tenure = None,
    }
    outcome
}

/// Releases on our thread; for guards that are dropped, and for holds that the store would keep after their loss.
pub(crate) fn later(tenure: Arc<Tenure>) {
    let Some(tenure) = not_of_the_parent(tenure) else { return };
    let job = tenure.shared.jobs.begin();
    // In this order: what has ended is not put back into the watchdog's table.
    let ours = tenure.end();
    tenure.shared.watchdog.remove(&tenure);
    go_on(tenure, job, if ours { Tell::First } else { Tell::Nothing });
}

/// `None` in a child after `fork`, which has a mere copy of what its parent has to give back. Nothing of it is dropped
/// there: that would close the parent's connections, or wait for a mutex that nobody unlocks any more.
fn not_of_the_parent<T>(value: T) -> Option<T> {
    if !is_forked() {
        return Some(value);
    }
    std::mem::forget(value);
    None
}

/// What our thread has to tell the observers about the end of the hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tell {
    /// It was told already.
    Nothing,
    /// Its end.
    First,
    /// Its end, after a release whose answer nobody has heard: a store that knows nothing of us may have freed it then.
    Again,
}

fn go_on(tenure: Arc<Tenure>, job: Job, tell: Tell) {
    let Some(tenure) = not_of_the_parent(tenure) else { return };
    let Ok(background) = background() else {
        // Without our thread only the ttl is left; neighbours must not wait for it here.
        tenure.pass_turn();
        return;
    };
    background.spawn(async move {
        let _job = job;
        let start = tenure.shared.clock.now();
        let held = start.since(tenure.since);
        // The store may keep it for longer than it was believed in: `max_hold` ends a belief, and so does an unheard renewal.
        let gone = start.after(tenure.hold.claim.ttl).max(tenure.deadline());
        for attempt in 0_u32.. {
            let answer = once(&tenure).await;
            if attempt == 0 && tell != Tell::Nothing {
                // A failure changes nothing about when the hold ended.
                let event = match answer {
                    Ok(Released::NotOwner) if tell == Tell::First => Event::Lost { cause: LossCause::Store, held },
                    _ => Event::Released { held },
                };
                tenure.shared.events.send(&tenure.label, event);
            }
            let Err(error) = answer else { break };
            if attempt == 0 {
                tenure.shared.events.send(&tenure.label, Event::ReleaseFailed { reason: error.to_string().into() });
                // A neighbour that asks now hears from the store itself; one kept waiting would take this for contention.
                tenure.pass_turn();
            }
            let now = tenure.shared.clock.now();
            // A lease that ends by itself needs no help beyond its end; a shared one is kept alive by its neighbours.
            let over = tenure.store.backend.capabilities().expires_alone && now >= gone;
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
    // The caller waits for this: less patience than an acquisition has.
    let mut bound = request_bound(tenure.hold.claim.ttl).min(Duration::from_secs(2));
    if let Some(tenancy) = tenure.take_tenancy()
        && tenure.ending().is_none()
    {
        let until = tenure.shared.clock.now().after(bound);
        if Box::pin(cohort::pass_on(tenure, *tenancy, bound)).await {
            return Ok(Released::Released);
        }
        bound = until.since(tenure.shared.clock.now());
        if bound.is_zero() {
            return Err(Error::outage("the store did not answer when it was asked for further tokens"));
        }
    }
    if let Some(carry) = Carry::begin(tenure) {
        return Box::pin(carry.send(bound)).await;
    }
    let request = tenure.store.ask(&tenure.shared.clock, bound, tenure, |backend, tenure| match tenure.ending() {
        None => backend.release(&tenure.hold),
        Some(ending) => Box::pin(async move { backend.end(&tenure.hold, &ending).await }),
    });
    let released = request.await?;
    tenure.pass_turn();
    Ok(released)
}

/// Hands the release to our thread unless it was done.
struct Late {
    tenure: Option<Arc<Tenure>>,
    tell: Tell,
}

impl Drop for Late {
    fn drop(&mut self) {
        if let Some(tenure) = self.tenure.take() {
            let job = tenure.shared.jobs.begin();
            go_on(tenure, job, self.tell);
        }
    }
}

/// Ends an acquisition of unknown outcome on our thread, so that nothing of it is left in the store.
pub(crate) fn abandon_later(shared: &Arc<Shared>, store: Arc<Store>, claim: Arc<Claim>, keep: Box<dyn Send>) {
    let Some(keep) = not_of_the_parent(keep) else { return };
    let job = shared.jobs.begin();
    let shared = shared.clone();
    let Ok(background) = background() else { return };
    background.spawn(async move {
        // The local turn: a neighbour that asked before the first answer would meet our own leftovers. Not for longer:
        // while the store is down, it shall hear of that, and not take it for contention.
        let mut keep = Some(keep);
        let _job = job;
        let gone = shared.clock.now().after(claim.ttl);
        for attempt in 0_u32.. {
            let bound =
                request_bound(claim.ttl).min(if keep.is_some() { Duration::from_secs(1) } else { Duration::MAX });
            let answer = store.ask(&shared.clock, bound, &claim, |backend, claim| backend.abandon(claim)).await;
            keep = None;
            let Err(error) = answer else { return };
            let now = shared.clock.now();
            let over = store.backend.capabilities().expires_alone && now >= gone;
            if over || !error.is_retryable() || shared.jobs.given_up() {
                return;
            }
            shared.clock.sleep_until(now.after(full_jitter(attempt, STEP, MOST))).await;
        }
    });
}
