//! Giving a lock back: in place when all goes well, on our thread when the guard was dropped or the store is silent.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Error, Expiry, LossCause, Released, Result};
use futures::future::BoxFuture;

use crate::events::observe::Event;
use crate::events::shutdown::Job;
use crate::hold::abandon::not_of_the_parent;
use crate::hold::cleanup::{Duty, Undo};
use crate::hold::cohort;
use crate::hold::release_to_next::ReleaseToNext;
use crate::hold::store::request_bound;
use crate::hold::tenure::Tenure;

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
    tenure.shared.renewals.remove(&tenure);
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
        Outcome::NotOwner => Some(LossCause::Store),
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
    tenure.shared.renewals.remove(&tenure);
    go_on(tenure, job, if ours { Tell::First } else { Tell::Nothing });
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
    let store = tenure.store.clone();
    let now = store.clock.now();
    // The store may keep it for longer than it was believed in: `max_hold` ends a belief, and so does an unheard renewal.
    let gone = now.after(tenure.hold.claim.ttl).max(tenure.valid_until());
    let held = now.since(tenure.since);
    let expires_alone = store.backend.capabilities().expires_alone;
    let undo = LateRelease { tenure, tell, held, tried: false };
    store.cleanups.add(Duty::new(Box::new(undo), gone, expires_alone, job), now);
}

/// The release of a hold, on our thread.
struct LateRelease {
    tenure: Arc<Tenure>,
    tell: Tell,
    /// For how long it was held.
    held: Duration,
    /// Was the store asked before?
    tried: bool,
}

impl Undo for LateRelease {
    fn attempt(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let answer = once(&self.tenure).await;
            let tell = std::mem::replace(&mut self.tell, Tell::Nothing);
            let tried = std::mem::replace(&mut self.tried, true);
            tell_of(&self.tenure, tell, self.held, tried, &answer);
            answer.map(drop)
        })
    }

    fn let_neighbours_go(&mut self) {
        self.tenure.pass_turn();
    }
}

/// Tells the observers of the end of a hold, at the first try; a failure changes nothing about when it ended.
fn tell_of(tenure: &Tenure, tell: Tell, held: Duration, tried: bool, answer: &Result<Released>) {
    let events = &tenure.shared.events;
    if tell != Tell::Nothing {
        let event = match answer {
            Ok(Released::NotOwner) if tell == Tell::First => Event::Lost { cause: LossCause::Store, held },
            _ => Event::Released { held },
        };
        events.send(&tenure.label, event);
    }
    if let (Err(error), false) = (answer, tried) {
        events.send(&tenure.label, Event::ReleaseFailed { reason: error.to_string().into() });
    }
}

async fn once(tenure: &Arc<Tenure>) -> Result<Released> {
    // The caller waits for this: less patience than an acquisition has.
    let mut bound = request_bound(tenure.hold.claim.ttl).min(Duration::from_secs(2));
    if let Some(cohort) = tenure.take_cohort()
        && tenure.ending().is_none()
    {
        let until = tenure.shared.clock.now().after(bound);
        if Box::pin(cohort::pass_on(tenure, *cohort, bound)).await {
            return Ok(Released::Released);
        }
        bound = until.since(tenure.shared.clock.now());
        if bound.is_zero() {
            return Err(Error::outage("the store did not answer when it was asked for further tokens"));
        }
    }
    if let Some(release) = ReleaseToNext::begin(tenure) {
        return Box::pin(release.send(bound)).await;
    }
    let request = tenure.store.ask(bound, tenure, |backend, tenure| match tenure.ending() {
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
