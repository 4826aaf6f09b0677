//! Giving a lock back: in place when all goes well, on our thread when the guard was dropped or the store is silent.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::engine::is_forked;
use dlock_contract::{BootInstant, Claim, Clock, Error, Expiry, LossCause, Released, Result};

use crate::broken::cause_of_loss;
use crate::carry::Carry;
use crate::cleanup::Cleanups;
use crate::closing::Job;
use crate::cohort;
use crate::observe::Event;
use crate::shared::Shared;
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
    /// The store did not answer; our thread goes on trying, and the ttl ends it at the latest. Ours to the end: a lease
    /// does not end before its time.
    Unknown,
    /// The session did not answer. It may have ended at any time, and the lock with it.
    Unconfirmed,
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
        Err(_) if tenure.store.backend.capabilities().expiry == Expiry::Lease => Outcome::Unknown,
        Err(_) => Outcome::Unconfirmed,
    };
    let cause = match outcome {
        Outcome::Released | Outcome::Unknown => None,
        Outcome::NotOwner => Some(Box::pin(cause_of_loss(tenure)).await),
        Outcome::Unconfirmed => Some(LossCause::Unconfirmed),
    };
    if let Some(cause) = cause.filter(|_| ours) {
        let held = tenure.shared.clock.now().since(tenure.since);
        tenure.shared.events.tell(&tenure.label, &Event::Lost { cause, held });
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
    let (shared, store) = (tenure.shared.clone(), tenure.store.clone());
    let now = shared.clock.now();
    // The store may keep it for longer than it was believed in: `max_hold` ends a belief, and so does an unheard renewal.
    let gone = now.after(tenure.hold.claim.ttl).max(tenure.deadline());
    let held = now.since(tenure.since);
    let duty =
        Duty { what: What::Hold { tenure, tell, held }, gone, tries: 0, shared, store: store.clone(), _job: job };
    Cleanups::add(&store, duty, now);
}

/// Something that our thread gives back: it tries until that is done, or has ended by itself.
pub(crate) struct Duty {
    what: What,
    shared: Arc<Shared>,
    store: Arc<Store>,
    /// When its lease is over.
    gone: BootInstant,
    tries: u32,
    /// A shutdown waits for it.
    _job: Job,
}

enum What {
    Hold {
        tenure: Arc<Tenure>,
        tell: Tell,
        /// For how long it was held.
        held: Duration,
    },
    /// An acquisition of unknown outcome, and what waits for the first answer: the local turn. A neighbour that asked
    /// before would meet our own leftovers. Not for longer: while the store is down, it shall hear of that.
    Claim { claim: Arc<Claim>, keep: Option<Box<dyn Send>> },
}

impl Duty {
    /// Tries once; when to try again, if that is worth it.
    pub(crate) async fn fulfil(mut self) -> Option<(BootInstant, Self)> {
        let answer = match &mut self.what {
            What::Hold { tenure, tell, held } => {
                let answer = once(tenure).await;
                tell_of(tenure, std::mem::replace(tell, Tell::Nothing), *held, self.tries, &answer);
                answer.map(drop)
            }
            What::Claim { claim, keep } => {
                let most = if keep.is_some() { Duration::from_secs(1) } else { Duration::MAX };
                let bound = request_bound(claim.ttl).min(most);
                self.store.ask(&self.shared.clock, bound, claim, |backend, claim| backend.abandon(claim)).await
            }
        };
        self.let_neighbours_go();
        let error = answer.err()?;
        let now = self.shared.clock.now();
        // A lease that ends by itself needs no help beyond its end; a shared one is kept alive by its neighbours.
        let over = self.store.backend.capabilities().expires_alone && now >= self.gone;
        if over || !error.is_retryable() || self.shared.jobs.given_up() {
            return None;
        }
        let pause = full_jitter(self.tries, STEP, MOST);
        self.tries += 1;
        Some((now.after(pause), self))
    }

    /// Lets the next caller of this process ask, although this is not done.
    pub(crate) fn let_neighbours_go(&mut self) {
        match &mut self.what {
            What::Hold { tenure, .. } => tenure.pass_turn(),
            What::Claim { keep, .. } => *keep = None,
        }
    }

    pub(crate) fn gone(&self) -> BootInstant {
        self.gone
    }

    pub(crate) fn clock(&self) -> Clock {
        self.shared.clock.clone()
    }
}

/// Tells the observers of the end of a hold, at the first try; a failure changes nothing about when it ended.
fn tell_of(tenure: &Tenure, tell: Tell, held: Duration, tries: u32, answer: &Result<Released>) {
    let events = &tenure.shared.events;
    if tell != Tell::Nothing {
        let event = match answer {
            Ok(Released::NotOwner) if tell == Tell::First => Event::Lost { cause: LossCause::Store, held },
            _ => Event::Released { held },
        };
        events.send(&tenure.label, event);
    }
    if let (Err(error), 0) = (answer, tries) {
        events.send(&tenure.label, Event::ReleaseFailed { reason: error.to_string().into() });
    }
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
    let now = shared.clock.now();
    let gone = now.after(claim.ttl);
    let what = What::Claim { claim, keep: Some(keep) };
    let duty = Duty { what, gone, tries: 0, shared: shared.clone(), store: store.clone(), _job: job };
    Cleanups::add(&store, duty, now);
}
