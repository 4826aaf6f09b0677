//! The life of one acquisition, from its first attempt to its end: a guard, or an error that names the key and the store.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Error, ErrorKind, Hold, HoldId, LockKey, OncePer, Queue, Result};
use dlock_store::engine::simulation::planted;
use dlock_store::engine::{SoleThread, guarded};
use dlock_store::is_forked;
use dlock_values::LONGEST;

use super::unpolled::watch;
use super::wait::attempt_bound;
use crate::acquire::request::Parked;
use crate::events::event::{Event, GrantWay};
use crate::events::spans::LockSpan;
use crate::events::store_event::Operation;
use crate::guard::Guard;
use crate::guard::holds::Holds;
use crate::hold::abandon::abandon_later;
use crate::hold::store::Store;
use crate::hold::tenure::{NewTenure, Shared, Tenure};
use crate::options::Wait;
use crate::options::lock_options::Resolved;
use crate::queue::{CohortState, Turn};
use crate::site::Label;

/// One acquisition on its way. It may have left something in the store; dropping it then cleans up on our thread.
pub(crate) struct Acquisition {
    pub(super) shared: Arc<Shared>,
    pub(super) store: Arc<Store>,
    pub(super) claim: Arc<Claim>,
    /// The lock that the claim's key is in this store.
    pub(super) lock: LockKey,
    /// Moves to the tenure.
    pub(super) label: Option<Label>,
    pub(super) options: Resolved,
    /// The caller's thread, if it alone runs the caller's tasks.
    pub(super) sole_thread: Option<SoleThread>,
    /// Present if the caller's thread sleeps meanwhile.
    pub(super) parked: Option<Box<Parked>>,
    /// Whether it is one key of several. All are handed out together.
    pub(super) sorted: bool,
    /// The locks that its call has already, if it is one key of several.
    pub(super) won: Option<Arc<Holds>>,
    pub(super) since: BootInstant,
    pub(super) wait_ends: BootInstant,
    pub(super) attempts: u32,
    pub(super) turn: Option<Turn>,
    /// Present if the hold may be passed on.
    pub(super) cohort: Option<Box<CohortState>>,
    /// Whether the hold was passed on by another caller.
    pub(super) passed: bool,
    pub(super) way: GrantWay,
    /// Whether it is counted among the jobs that a shutdown waits for.
    pub(super) counted: bool,
    pub(super) reported: Reported,
    /// Whether attempts may have left something in the store, which an abandon must undo.
    pub(super) must_abandon: bool,
    /// The abandon request got no reply and may still arrive later.
    pub(super) undo_unconfirmed: bool,
}

/// The part of an acquisition that the observers have heard of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reported {
    #[default]
    Nothing,
    Begin,
    Outcome,
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if (self.must_abandon || self.turn.is_some()) && is_forked() {
            // In a child after `fork` this is a copy of the parent's acquisition.
            std::mem::forget(self.turn.take());
            return;
        }
        if let (Reported::Begin, Some(label)) = (self.reported, &self.label) {
            self.shared.events.tell(label, &Event::GivenUp { waited: self.waited() });
        }
        if self.must_abandon && !planted("nothing is abandoned on drop") {
            self.leave(self.claim.clone());
        }
        if self.counted {
            self.shared.jobs.leave();
        }
    }
}

impl Acquisition {
    pub(crate) fn run(mut self) -> impl Future<Output = Result<Guard>> + Send {
        guarded(async move {
            let span = LockSpan::wait(|| self.label.clone());
            #[cfg(feature = "testing")]
            if self.shared.clock.is_of_kit() {
                let clock = self.shared.clock.clone();
                let mut won = clock.unless_it_stands(self.win()).await.and_then(|won| won);
                loop {
                    if let Some(ended) = self.finish(won).transpose() {
                        span.waited(&ended);
                        return ended;
                    }
                    won = clock.unless_it_stands(self.win_anew()).await.and_then(|won| won);
                }
            }
            let mut won = self.win().await;
            loop {
                if let Some(ended) = self.finish(won).transpose() {
                    span.waited(&ended);
                    return ended;
                }
                won = Box::pin(self.win_anew()).await;
            }
        })
    }

    /// Begins the hold, or reports the failure. `None`: see [`begin`](Self::begin).
    pub(super) fn finish(&mut self, won: Result<Hold>) -> Result<Option<Guard>> {
        won.and_then(|hold| self.begin(hold)).map_err(|error| self.report_failure(error))
    }

    /// Begins again, because this caller was not polled and has lost its turn.
    async fn win_anew(&mut self) -> Result<Hold> {
        let answer = self.join_anew().await?;
        self.contend(answer).await
    }

    async fn win(&mut self) -> Result<Hold> {
        self.report_begin();
        self.turn = Some(self.join().await?);
        self.count();
        match self.take_over() {
            Some(Ok(Attempt::Acquired(hold))) => return Ok(hold),
            Some(Ok(answer)) => return Box::pin(self.contend(Ok(answer))).await,
            Some(Err(late)) => return Box::pin(self.begin_anew(late)).await,
            None => {}
        }
        match self.attempt().await? {
            Ok(Attempt::Acquired(hold)) if hold.validity.deadline() > self.shared.clock.now() => Ok(hold),
            // Boxed, because the uncontended path does not need it. This keeps the future small.
            answer => Box::pin(self.contend(answer)).await,
        }
    }

    /// Begins again, because the hold that was passed on has expired.
    async fn begin_anew(&mut self, late: Arc<Claim>) -> Result<Hold> {
        self.abandon_late(late).await;
        let answer = self.attempt().await?;
        self.contend(answer).await
    }

    /// Asks the store once. The outer error is a shutdown.
    pub(super) async fn attempt(&mut self) -> Result<Result<Attempt>> {
        if let Err(error) = self.store.breaker.admit(|| self.shared.clock.now()) {
            // The store was not asked.
            return Ok(Err(error));
        }
        self.attempts += 1;
        self.way = GrantWay::Request;
        watch(&self.store);
        if self.undo_unconfirmed
            && !planted("the owner stays after an unconfirmed undo")
            && let Err(error) = self.change_owner()
        {
            return Ok(Err(error));
        }
        let had_to_abandon = std::mem::replace(&mut self.must_abandon, true);
        let queue = if self.options.wait == Wait::None {
            Queue::Leave
        } else {
            Queue::Join { until: self.wait_ends, asks_again_within: self.options.backoff.map(|backoff| backoff.to) }
        };
        let bound = self.attempt_bound();
        let answer = self
            .store
            .ask(Operation::Acquire, bound, &self.claim, move |backend, claim| backend.try_acquire(claim, queue));
        let answer = self.shared.shutdown.or_bounded(answer).await?;
        let is_granted = answer.as_ref().map(|answer| matches!(answer, Attempt::Acquired(_)));
        self.store.findings.note_answer(self.claim.ttl, is_granted);
        // A request that never left this process leaves nothing to undo.
        self.must_abandon = had_to_abandon || answer.as_ref().err().is_none_or(Error::may_have_left);
        Ok(answer)
    }

    /// The bound of one attempt.
    pub(super) fn attempt_bound(&self) -> Duration {
        attempt_bound(&self.options, self.wait_ends, self.shared.clock.now())
    }

    /// The lock is held. From here on, dropping the guard releases it. `None` if this caller has lost its turn because
    /// it was not polled: then the next caller gets the lock, and the grant is abandoned.
    pub(super) fn begin(&mut self, mut hold: Hold) -> Result<Option<Guard>> {
        let waited = self.waited();
        if planted("a hold counts from its answer") {
            hold.validity.from = self.shared.clock.now();
        }
        if !self.passed {
            // Our thread may have asked for the hold. From here on it belongs to this caller.
            hold.claim = self.claim.clone();
        }
        let mut has_turn = true;
        if let Some(turn) = self.turn.as_ref().filter(|_| self.claim.mode.is_shared()) {
            has_turn = turn.note_answer();
        }
        let mut label =
            self.label.take().ok_or_else(|| Error::new(ErrorKind::Internal, "an acquisition began twice"))?;
        label.note_claim(hold.claim.clone(), hold.token.filter(|_| self.passed));
        self.must_abandon = false;
        let mut since = if self.passed { self.shared.clock.now() } else { hold.validity.from };
        let mut cohort = self.cohort.take();
        if let Some(first) = cohort.as_ref().filter(|_| planted("max_hold counts from the first of a cohort")) {
            since = since.min(first.alone_at);
        }
        if let Some(cohort) = &mut cohort
            && !self.passed
        {
            let listed = self.shared.cohorts.add(HoldId::of(&hold.claim.owner));
            cohort.begin(since, listed);
        }
        let passes = cohort.is_some();
        let tenure = Arc::new(Tenure::begin(NewTenure {
            hold,
            lock: self.lock.clone(),
            store: self.store.clone(),
            shared: self.shared.clone(),
            label,
            cadence: self.options.cadence,
            max_hold: self.options.max_hold,
            min_hold: self.options.min_hold,
            recorded: self.options.record && self.store.backend.periods().is_some(),
            sole_thread: self.sole_thread.or_else(|| self.parked.as_ref()?.sole_thread),
            #[cfg(debug_assertions)]
            sorted: self.sorted,
            turn: self.turn.take(),
            since,
            cohort,
        }));
        if self.claim.mode.is_shared() {
            // Others may hold this lock too, so the turn was only the right to ask.
            tenure.pass_turn();
        } else if self.store.hands_on() && !passes {
            // The next caller of this process joins the store's wait queue now, so that the release can hand it the
            // lock. If the release will ask for that caller, it does not.
            has_turn = tenure.share_turn();
        } else {
            has_turn = tenure.keep_turn();
        }
        // Its begin was not reported, so there is no guard whose drop would report its end.
        let undo = |tenure: &Tenure| abandon_later(&self.store, tenure.hold.claim.clone(), Box::new(()));
        if !has_turn && !planted("a caller that has lost its turn takes its grant") {
            undo(&tenure);
            tenure.end();
            self.label = Some(tenure.label.clone());
            self.passed = false;
            // The tokens that are left are lower than that of the next grant.
            self.cohort = tenure.take_cohort().map(|cohort| Box::new(cohort.for_next_hold()));
            return Ok(None);
        }
        let shared = &self.shared;
        if let Err(error) = shared.shutdown.check().and_then(|()| shared.renewals.add(&tenure)) {
            undo(&tenure);
            self.label = Some(tenure.label.clone());
            return Err(error);
        }
        if !self.sorted {
            tenure.note_handed_out();
        }
        let token = tenure.hold.token.map(std::num::NonZeroU64::get);
        self.report(&tenure.label, &Event::Acquired { waited, attempts: self.attempts, way: self.way, token });
        let mut guard = Guard::new(tenure);
        guard.begin_span();
        Ok(Some(guard))
    }

    /// Abandons a claim on our thread. The turn waits for that.
    pub(super) fn leave(&mut self, claim: Arc<Claim>) {
        let turn = self.turn.take().map(Turn::left);
        abandon_later(&self.store, claim, Box::new(turn));
    }

    /// The time since the call.
    fn waited(&self) -> Duration {
        self.shared.clock.now().since(self.since)
    }

    /// A shutdown waits for this acquisition, until the hold is in the renewal schedule or our thread abandons it.
    pub(super) fn count(&mut self) {
        self.shared.jobs.enter();
        self.counted = true;
    }

    /// Reports to observers that the caller asks for the lock.
    pub(super) fn report_begin(&mut self) {
        if let Some(label) = self.label.as_ref().filter(|_| self.reported == Reported::Nothing) {
            self.shared.events.tell_observers(label, &self.asked());
            self.reported = Reported::Begin;
        }
    }

    fn asked(&self) -> Event {
        asked(self.options.wait, self.options.max_hold, self.claim.once_per.as_deref())
    }

    /// Reports the outcome to observers, after the begin.
    fn report(&mut self, label: &Label, outcome: &Event) {
        if self.reported == Reported::Nothing {
            self.shared.events.tell_observers(label, &self.asked());
        }
        self.reported = Reported::Outcome;
        self.shared.events.tell(label, outcome);
    }

    /// Reports the failure to observers, and adds the key and the store to the error.
    pub(super) fn report_failure(&mut self, error: Error) -> Error {
        let waited = self.waited();
        let lock = (&self.claim.key, &self.lock);
        let error = self.store.named(error, lock, self.options.sensitive).with_attempts(self.attempts);
        let event = match error.kind() {
            ErrorKind::Busy | ErrorKind::QueueFull { .. } => Event::Busy { waited },
            ErrorKind::AlreadyRun => Event::AlreadyRun { waited },
            ErrorKind::WaitTimeout => Event::TimedOut { waited, attempts: self.attempts },
            _ => Event::failed(&error, waited),
        };
        if let Some(label) = self.label.take() {
            if let kind @ (ErrorKind::WouldDeadlock | ErrorKind::Conflict) = error.kind() {
                self.shared.events.tell_observers(&label, &Event::Deadlock { kind: kind.clone() });
            }
            self.report(&label, &event);
        }
        error
    }
}

pub(super) fn asked(wait: Wait, max_hold: Duration, once_per: Option<&OncePer>) -> Event {
    let wait = if let Wait::UpTo(longest) = wait { Some(longest) } else { None };
    let max_hold = Some(max_hold).filter(|longest| *longest < LONGEST);
    Event::Asked { wait, max_hold, once_per: once_per.copied() }
}

#[cfg(test)]
mod tests;
