//! The wait for the lock, after an attempt that did not win: news, further attempts, and the end of the wait.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Error, ErrorKind, Hold, Owner, Result, Signal, Wake};
use dlock_store::engine::simulation::planted;

use super::acquisition::Acquisition;
use super::refused::{already_run, busy, timed_out};
use super::wait::{Pace, ask_again_at, news};
use crate::events::event::GrantWay;
use crate::events::store_event::Operation;
use crate::hold::abandon::{LONGEST_ABANDON, abandon, abandon_later};
use crate::hold::jitter::full_jitter;
use crate::hold::store::request_bound;
use crate::options::Wait;
use crate::options::lock_options::Resolved;

/// A store that has not answered for this time is silent.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);

impl Acquisition {
    /// Waits for news and asks again until the wait ends, after a first attempt that did not win.
    pub(super) async fn contend(&mut self, first: Result<Attempt>) -> Result<Hold> {
        let shared = self.shared.clone();
        let style = self.store.backend.profile().wake;
        let pace = Pace { style, backoff: self.options.backoff };
        let mut last: Option<Wake> = None;
        let mut first = Some(first);
        let (mut contentions, mut failures) = (0, 0);
        loop {
            let bound = self.attempt_bound();
            let answer = match first.take() {
                Some(answer) => answer,
                // The last wake is kept until this attempt has answered: news may come in between.
                None if self.note_next_act(None) => {
                    if planted("a waiter gives its place up when it asks again") {
                        self.change_owner()?;
                    }
                    self.attempt().await?
                }
                None => {
                    // The new turn has not heard yet that the store answers, and the neighbours behind it ask that turn.
                    contentions = 0;
                    self.join_anew().await?
                }
            };
            let waited_for = last.take();
            let answer = match answer {
                Ok(Attempt::Contended(wake)) => Ok(wake),
                Ok(Attempt::AlreadyRun) => {
                    if let Some(turn) = &self.turn {
                        turn.note_answer();
                    }
                    self.must_abandon = self.attempts > 1 && !planted("an attempt before a run is not abandoned");
                    return Err(already_run());
                }
                Ok(Attempt::Acquired(hold)) => match self.accept(hold).await {
                    Some(hold) => return Ok(hold),
                    None => Err(Error::outage("the store's answer came too late: the grant had already expired")),
                },
                Err(error) => Err(error),
            };
            let wake = match answer {
                Ok(wake) if self.options.wait == Wait::None => {
                    // The attempt did not join the store's wait queue, so nothing of ours is in the store.
                    self.must_abandon = false;
                    if let Some(turn) = &self.turn {
                        turn.note_contended();
                    }
                    return Err(busy(&wake, &shared.clock));
                }
                Ok(wake) => {
                    if contentions == 0 {
                        if let Some(turn) = &mut self.turn {
                            turn.note_contended();
                            // The store's wait queue has one order for all processes, so a neighbour takes its own
                            // place there.
                            if self.claim.fair {
                                turn.join_store_queue();
                            }
                        }
                        // Checked before the sleep, because the holder may be a reader, which keeps no turn.
                        self.check_parking()?;
                        self.check_other_names(true).await?;
                    }
                    last.insert(wake)
                }
                // The end of the wait has cut this attempt short, so its silence says nothing about the store.
                Err(error)
                    if *error.kind() == ErrorKind::Outage
                        && bound < SILENCE_LIMIT
                        && shared.clock.now() >= self.wait_ends
                        && waited_for.is_some() =>
                {
                    self.give_up().await;
                    return Err(waited_for.map_or(error, |wake| timed_out(&wake, None, &shared.clock)));
                }
                Err(error) => {
                    self.tell_neighbours(&error);
                    let Resolved { retries, retry_pauses, .. } = self.options;
                    let retry_after = error.told_after();
                    // A store that says when it will grant again has not failed.
                    let is_last = if retry_after.is_some() {
                        self.attempts >= self.options.attempts
                    } else {
                        failures >= retries
                    };
                    if self.options.wait == Wait::None || is_last || !may_pass(&error) {
                        return Err(error);
                    }
                    let pause = match retry_after {
                        Some(left) => left.saturating_add(Duration::from_millis(1 + fastrand::u64(0..20))),
                        None => full_jitter(failures, retry_pauses.from, retry_pauses.to),
                    };
                    failures += u32::from(retry_after.is_none());
                    let retry_at = shared.clock.now().after(pause);
                    if retry_at >= self.wait_ends {
                        return Err(error);
                    }
                    if retry_after.is_some() {
                        first = Box::pin(self.stand_aside(retry_at)).await?;
                        contentions = 0;
                    } else {
                        self.sleep_until(retry_at).await?;
                    }
                    continue;
                }
            };
            // Otherwise one caller would have two waits in the store, and nobody would hear of a grant to the older
            // one.
            drop(waited_for);
            failures = 0;
            if self.attempts >= self.options.attempts && wake.signal.is_none() {
                // Waiting is useless: no notification will come, and no attempt is left.
                let error = timed_out(wake, wake.lease_left, &shared.clock);
                drop(last);
                self.give_up().await;
                return Err(error);
            }
            let asked_at = shared.clock.now();
            let until = ask_again_at(asked_at, wake, pace, contentions).min(self.wait_ends);
            self.note_next_act(Some(until));
            // A neighbour before this one in the store's queue may have got the lock, and not be polled.
            self.look_at_neighbours();
            let news = news(&self.store, &shared.clock, wake, until);
            let has_news = match shared.shutdown.or(news).await? {
                Ok(Some(Signal::Granted(hold))) => {
                    self.way = GrantWay::Queue;
                    self.store.findings.note_answer(self.claim.ttl, Ok(true));
                    self.store.observed.note_answer();
                    match self.accept(hold).await {
                        Some(hold) => return Ok(hold),
                        None => false,
                    }
                }
                Ok(_) => true,
                Err(error) if ends_wait(&error) => {
                    self.tell_neighbours(&error);
                    drop(last);
                    self.give_up().await;
                    return Err(error);
                }
                Err(error) => {
                    self.store.observed.note_failed_wait(&error);
                    false
                }
            };
            if !has_news {
                // A signal that failed carries no news, and the next one may fail as fast. So use the back-off without
                // a signal.
                wake.signal = None;
                let ask_at = ask_again_at(shared.clock.now(), wake, pace, contentions).min(self.wait_ends);
                self.sleep_until(ask_at).await?;
            }
            contentions += 1;
            let now = shared.clock.now();
            if now >= self.wait_ends && planted("an outage without a reason") {
                return Err(Error::outage("the wait has ended"));
            }
            if now >= self.wait_ends || self.attempts >= self.options.attempts {
                let left = wake.lease_left.map(|left| left.saturating_sub(now.since(asked_at)));
                let error = timed_out(wake, left, &shared.clock);
                drop(last);
                self.give_up().await;
                return Err(error);
            }
        }
    }

    /// Tells the callers behind that the store failed: they have not waited for a holder.
    pub(super) fn tell_neighbours(&self, error: &Error) {
        let is_of_store = matches!(
            error.kind(),
            ErrorKind::Outage | ErrorKind::NotPrimary | ErrorKind::PermissionDenied | ErrorKind::Unsupported { .. }
        );
        if let Some(turn) = self.turn.as_ref().filter(|_| is_of_store) {
            turn.note_failure(error);
        }
    }

    /// Sleeps while the store grants nothing to anybody. It gives up the turn, so that neighbours hear that from the
    /// store too, and not that others hold the lock. Returns the handover that comes with the next turn.
    async fn stand_aside(&mut self, until: BootInstant) -> Result<Option<Result<Attempt>>> {
        self.give_up().await;
        // If something may still be in the store, the turn is kept. Otherwise a late abandon would meet the next
        // attempt.
        if !self.must_abandon {
            self.turn = None;
        }
        self.sleep_until(until).await?;
        if self.turn.is_none() {
            self.turn = Some(self.join().await?);
        }
        Ok(self.answer_of_handover().await)
    }

    /// Sleeps, and fails at a shutdown.
    async fn sleep_until(&mut self, until: BootInstant) -> Result<()> {
        self.note_next_act(Some(until));
        self.shared.shutdown.or(self.shared.clock.sleep_until(until)).await
    }

    /// Notes when this caller acts again, if it is polled: see [`Turn::note_next_act`](crate::queue::Turn::note_next_act).
    fn note_next_act(&self, sleeps_until: Option<BootInstant>) -> bool {
        self.turn.as_ref().is_none_or(|turn| turn.note_next_act(&self.claim, sleeps_until))
    }

    /// Returns the hold, unless it has already expired when it arrives. Then it is released. One that was passed on was
    /// checked when it was taken over.
    async fn accept(&mut self, hold: Hold) -> Option<Hold> {
        if self.passed || planted("an expired grant is taken") || hold.validity.deadline() > self.shared.clock.now() {
            return Some(hold);
        }
        let bound = request_bound(self.claim.ttl);
        let hold = Arc::new(hold);
        let released = self.store.ask(Operation::Release, bound, &hold, |backend, hold| backend.release(hold)).await;
        // If this fails, the abandon that follows releases it, or the ttl does.
        self.undo_unconfirmed |= released.is_err();
        None
    }

    /// Leaves the store's wait queue. In place, so that nothing of ours is in the store when the caller hears of the
    /// timeout.
    pub(super) async fn give_up(&mut self) {
        match abandon(&self.store, &self.claim, LONGEST_ABANDON).await {
            Ok(()) => self.must_abandon = false,
            Err(_) if planted("a failed abandon is forgotten") => self.must_abandon = false,
            Err(_) => self.undo_unconfirmed = true,
        }
    }

    /// Goes on with a new owner id. The abandon of the present one may still be on its way, and must not undo the next
    /// attempt.
    pub(super) fn change_owner(&mut self) -> Result<()> {
        if self.must_abandon && self.claim.once_per.is_some() {
            // With a new owner id, a start that the store may have noted for us would look like another owner's run.
            return Err(Error::outage("the store did not confirm that a possible earlier start was abandoned"));
        }
        let mut claim = (*self.claim).clone();
        claim.owner = Owner::fresh()?;
        let old_claim = std::mem::replace(&mut self.claim, Arc::new(claim));
        abandon_later(&self.store, old_claim, Box::new(()));
        self.undo_unconfirmed = false;
        // The turn knows the claim that is to be abandoned.
        self.note_next_act(None);
        Ok(())
    }
}

/// Whether another attempt of this call can help. A store that was open has become read-only, as in a planned switch-over,
/// and the wait may be longer than that.
pub(super) fn may_pass(error: &Error) -> bool {
    error.is_retryable() || *error.kind() == ErrorKind::NotPrimary
}

/// Whether waiting on is useless after an error of the wait. At a conflict the caller has to end its enclosing holds. An answer
/// that made no sense concerns one connection only, and the next attempt shows more.
fn ends_wait(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Conflict => true,
        ErrorKind::Protocol | ErrorKind::Internal => false,
        _ => !may_pass(error),
    }
}
