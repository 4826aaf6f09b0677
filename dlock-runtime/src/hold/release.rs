//! Releases a lock: in place if the store answers, later on our thread if the guard was dropped or the store is silent.
//!
//! Where a store makes the work of a body final, that comes first, and only in place: see [`settling`](super::settling).

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Error, Expiry, LossCause, Released, Result};
use dlock_store::engine::simulation::planted;
use futures::future::BoxFuture;

use crate::events::event::Event;
use crate::events::shutdown::Job;
use crate::events::store_event::Operation;
use crate::hold::abandon::not_of_the_parent;
use crate::hold::cleanup::{Duty, Undo};
use crate::hold::cohort;
use crate::hold::loss_cause::cause_of_loss;
use crate::hold::release_to_next::ReleaseToNext;
use crate::hold::settling::{self, Work};
use crate::hold::store::request_bound;
use crate::hold::tenure::{Ending, Tenure};
use crate::options::supported::refused;
use crate::queue::LONGEST_RELEASE;

/// The outcome of a release in place.
#[derive(Debug)]
pub(crate) enum ReleaseOutcome {
    /// The lock was held to the end, and is free now.
    Released,
    /// The store says that this owner no longer held the lock.
    NotOwner,
    /// The store did not answer, or only after the end of the lease. Our thread goes on trying, and the ttl ends the lock at
    /// the latest. The lock was held to the end: a lease does not end before its time.
    Unknown,
    /// The session did not answer. It may have ended at any time, and the lock with it.
    Unconfirmed,
    /// The body's work was not made final, or nobody knows whether it was.
    Unsettled(Error),
}

/// Releases in the caller's task. If the returned future is dropped, our thread releases.
pub(crate) async fn in_place(tenure: Arc<Tenure>) -> ReleaseOutcome {
    // A shutdown waits for this release too.
    let shared = tenure.shared.clone();
    let _call = shared.jobs.call();
    tenure.note_release();
    let was_held = tenure.end();
    tenure.shared.renewals.remove(&tenure);
    let mut on_drop = ReleaseOnDrop {
        tenure: Some(tenure),
        report: if was_held { ReleaseReport::Again } else { ReleaseReport::Nothing },
    };
    let Some(tenure) = on_drop.tenure.as_ref() else { return ReleaseOutcome::Unknown };
    let settled = match settling::work_of(tenure) {
        Work::None => None,
        // A hold that was lost at the last moment is undone by its release.
        Work::Done(_) if !was_held => return ReleaseOutcome::NotOwner,
        work => Some(Box::pin(settling::settle(tenure, work)).await),
    };
    let is_watched = tenure.watch_release();
    let answer = send(tenure).await;
    if is_watched {
        tenure.shared.renewals.remove(tenure);
    }
    let outcome = match &answer {
        _ if matches!(settled, Some(Ok(()))) => ReleaseOutcome::Released,
        Ok(Released::Released) => ReleaseOutcome::Released,
        Ok(Released::NotOwner) => ReleaseOutcome::NotOwner,
        Err(_)
            if tenure.store.backend.profile().expiry == Expiry::Lease || planted("a session needs no confirmation") =>
        {
            ReleaseOutcome::Unknown
        }
        Err(_) => ReleaseOutcome::Unconfirmed,
    };
    let outcome = match settled {
        Some(Err(error)) if !planted("work that is not final is a success") => {
            let (kind, held) = (error.kind().clone(), tenure.shared.clock.now().since(tenure.since));
            tenure.shared.events.tell(&tenure.label, &Event::NotSettled { kind, held });
            ReleaseOutcome::Unsettled(error)
        }
        _ => outcome,
    };
    let (outcome, cause) = match outcome {
        ReleaseOutcome::NotOwner => {
            // Before the store is asked for the cause.
            let lease_has_ended = lease_has_ended(tenure);
            match Box::pin(cause_of_loss(tenure)).await {
                LossCause::Store if lease_has_ended && was_held => (ReleaseOutcome::Unknown, None),
                cause => (outcome, Some(cause)),
            }
        }
        ReleaseOutcome::Unconfirmed => (outcome, Some(LossCause::Unconfirmed)),
        _ => (outcome, None),
    };
    let held = tenure.shared.clock.now().since(tenure.since);
    if let Some(cause) = cause.filter(|_| was_held) {
        tenure.shared.events.tell(&tenure.label, &Event::lost(cause, held));
    }
    match answer {
        Err(error) => {
            tenure.shared.events.tell(&tenure.label, &Event::release_failed(&tenure.named(error), held));
            // `on_drop` goes out of scope, and our thread tries again. The end of the hold is reported here, not there.
            on_drop.report = ReleaseReport::Nothing;
            if planted("a release is tried once") {
                on_drop.tenure = None;
            }
        }
        Ok(_) => on_drop.tenure = None,
    }
    outcome
}

/// Releases on our thread. For guards that are dropped, and for lost holds that the store would keep for longer than
/// their leases.
pub(crate) fn later(tenure: Arc<Tenure>) {
    let Some(tenure) = not_of_the_parent(tenure) else { return };
    let job = tenure.shared.jobs.begin();
    tenure.note_release();
    // In this order: a hold that has ended is not put back into the renewal schedule.
    let was_held = tenure.end();
    release_on_our_thread(tenure, job, if was_held { ReleaseReport::First } else { ReleaseReport::Nothing });
}

/// The event that our thread still has to send to the observers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReleaseReport {
    /// The end of the hold was reported already.
    Nothing,
    /// The end of the hold.
    First,
    /// The end of the hold, after a release without an answer. If the store does not know the hold now, that release
    /// may have freed it: this is no loss.
    Again,
}

fn release_on_our_thread(tenure: Arc<Tenure>, job: Job, report: ReleaseReport) {
    let Some(tenure) = not_of_the_parent(tenure) else { return };
    tenure.shared.renewals.remove(&tenure);
    let store = tenure.store.clone();
    let now = store.clock.now();
    // The store may keep the lock for longer than the hold was valid here: after `max_hold`, or after a renewal without
    // an answer.
    let gone = now.after(tenure.hold.claim.ttl).max(tenure.valid_until());
    let held = now.since(tenure.since);
    let expires_alone = store.backend.profile().expires_alone;
    let undo = LateRelease { tenure, report, held, tried: false };
    store.cleanups.add(Duty::new(Box::new(undo), gone, expires_alone, job), now);
}

/// The release of a hold, on our thread.
struct LateRelease {
    tenure: Arc<Tenure>,
    report: ReleaseReport,
    /// The time from the grant to the end.
    held: Duration,
    /// Whether the store was asked before.
    tried: bool,
}

impl Undo for LateRelease {
    fn attempt(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let answer = send(&self.tenure).await;
            let report = std::mem::replace(&mut self.report, ReleaseReport::Nothing);
            let tried = std::mem::replace(&mut self.tried, true);
            report_end(&self.tenure, report, self.held, tried, &answer);
            answer.map(drop)
        })
    }

    fn let_neighbours_go(&mut self) {
        self.tenure.pass_turn();
    }
}

/// Whether the last confirmed lease of this hold has ended by now. If the store then answers that this owner does not hold the
/// lock, the lease may have ended after the body, on the way of the release. That is no loss.
fn lease_has_ended(tenure: &Tenure) -> bool {
    let last = tenure.validity();
    tenure.store.backend.profile().expiry == Expiry::Lease && tenure.store.clock.now() >= last.from.after(last.granted)
}

/// Reports the end of a hold at the first try. A failed release does not change when the hold ended.
fn report_end(tenure: &Tenure, report: ReleaseReport, held: Duration, tried: bool, answer: &Result<Released>) {
    let events = &tenure.shared.events;
    if report != ReleaseReport::Nothing {
        let event = match answer {
            Ok(Released::NotOwner) if report == ReleaseReport::First && !lease_has_ended(tenure) => {
                Event::lost(LossCause::Store, held)
            }
            _ => Event::Released { held },
        };
        events.send(&tenure.label, event);
    }
    if let (Err(error), false) = (answer, tried) {
        events.send(&tenure.label, Event::release_failed(&tenure.named(error.again()), held));
    }
}

/// Releases a hold whose caller does not poll its release, which may not have been sent.
pub(super) fn unpolled(tenure: Arc<Tenure>) {
    let job = tenure.shared.jobs.begin();
    release_on_our_thread(tenure, job, ReleaseReport::Nothing);
}

/// The caller waits for a release, so this is shorter than the bound of an acquisition.
pub(super) fn release_bound(tenure: &Tenure) -> Duration {
    request_bound(tenure.hold.claim.ttl).min(LONGEST_RELEASE)
}

async fn send(tenure: &Arc<Tenure>) -> Result<Released> {
    let mut bound = release_bound(tenure);
    let _listed;
    // Its store has nothing more to do at the end than to free the lock.
    if let Some(cohort) = tenure.take_cohort() {
        tenure.note_turn_release();
        // Until the store has answered, no earlier caller's id may end the hold.
        _listed = cohort.listed.clone();
        let until = tenure.shared.clock.now().after(bound);
        if Box::pin(cohort::pass_on(tenure, *cohort, bound)).await {
            return Ok(Released::Released);
        }
        bound = until.since(tenure.shared.clock.now());
        if bound.is_zero() {
            return Err(Error::outage("the store did not answer the request for more tokens"));
        }
    }
    if let Some(release) = ReleaseToNext::begin(tenure) {
        return Box::pin(release.send(bound)).await;
    }
    let request = tenure.store.ask(Operation::Release, bound, tenure, |backend, tenure| match tenure.ending() {
        None => backend.release(&tenure.hold),
        Some(Ending::Kept(time, run)) => match backend.keeps() {
            Some(keeps) => keeps.keep(&tenure.hold, time, run),
            None => refused("min_hold"),
        },
        Some(Ending::Recorded(run)) => match backend.periods() {
            Some(periods) => periods.end_run(&tenure.hold, run),
            None => refused("once_per"),
        },
    });
    let released = request.await?;
    if released == Released::Released && tenure.has_succeeded() {
        let at_ms = tenure.shared.clock.wall_ms();
        tenure.shared.events.tell_observers(&tenure.label, &Event::Succeeded { at_ms });
    }
    tenure.pass_turn();
    Ok(released)
}

/// Hands the release to our thread if it is dropped before the release was done.
struct ReleaseOnDrop {
    tenure: Option<Arc<Tenure>>,
    report: ReleaseReport,
}

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        if let Some(tenure) = self.tenure.take() {
            let job = tenure.shared.jobs.begin();
            release_on_our_thread(tenure, job, self.report);
        }
    }
}
