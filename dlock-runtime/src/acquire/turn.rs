//! Gets the turn of this process, and takes the handover that may come with it.

use std::sync::{Arc, Weak};

use dlock_contract::{Attempt, BootInstant, Claim, Error, ErrorKind, Hold, Mode, Note, Result};

use super::acquisition::Acquisition;
use super::refused::{behind, in_words};
use super::unpolled::{undo, watch};
use super::wait::SHORTEST_ATTEMPT_BOUND;
use crate::events::event::GrantWay;
use crate::hold::abandon::{LONGEST_ABANDON, abandon, abandon_later};
use crate::hold::store::LONGEST_REQUEST;
use crate::hold::tenure::Tenure;
use crate::options::Wait;
use crate::queue::{Content, Joined, KnownState, TAKEN_UP_WITHIN, Turn, TurnRequest, Waiting, Won};

/// An acquisition that abandons a handover which came too late. If it is dropped, our thread goes on with that.
struct AbandonsLate<'a> {
    acquisition: &'a mut Acquisition,
    late: Option<Arc<Claim>>,
}

impl Drop for AbandonsLate<'_> {
    fn drop(&mut self) {
        if let Some(late) = self.late.take() {
            self.acquisition.leave(late);
        }
    }
}

impl Acquisition {
    /// Takes over the handover that came with the turn, as the answer to an attempt. The error is the claim of a hold that
    /// was on its way for longer than its grant lasts.
    pub(super) fn take_over(&mut self) -> Option<std::result::Result<Attempt, Arc<Claim>>> {
        let handover = self.turn.as_mut()?.take_handover()?;
        let is_late = |hold: &Hold| hold.validity.deadline() <= self.shared.clock.now();
        match handover.content {
            Content::Hold { hold, .. } | Content::Answer(Attempt::Acquired(hold)) if is_late(&hold) => {
                Some(Err(handover.claim))
            }
            Content::Hold { hold, cohort } => {
                self.cohort = Some(Box::new(cohort));
                self.passed = true;
                self.way = GrantWay::Cohort;
                Some(Ok(Attempt::Acquired(hold)))
            }
            Content::Answer(answer) => {
                // Go on as if this caller had asked, with the owner id of the release. Further requests go over this
                // caller's own connection, and so does the abandon.
                let origin = self.claim.origin;
                self.claim = handover.claim;
                if self.claim.origin != origin {
                    Arc::make_mut(&mut self.claim).origin = origin;
                }
                self.attempts += 1;
                self.way = GrantWay::Release;
                self.must_abandon = true;
                Some(Ok(answer))
            }
        }
    }

    /// Abandons a claim whose hold came too late. A renewal that was under way may have prolonged it in the store.
    pub(super) async fn abandon_late(&mut self, late: Arc<Claim>) {
        let mut abandons = AbandonsLate { late: Some(late.clone()), acquisition: self };
        let answer = abandon(&abandons.acquisition.store, &late, LONGEST_ABANDON).await;
        abandons.late = None;
        drop(abandons);
        if answer.is_err() {
            // The turn stays here: this acquisition needs it.
            abandon_later(&self.store, late, Box::new(()));
        }
    }

    /// Joins the queue again, because this caller was not polled and has lost its turn. Returns the answer to its next
    /// attempt, or that of the handover that comes with the turn. The outer error ends the acquisition.
    pub(super) async fn join_anew(&mut self) -> Result<Result<Attempt>> {
        self.turn = None;
        if self.must_abandon && self.claim.once_per.is_some() {
            // Abandon now and wait for it: with a new owner id, the call may go on only if the store confirms that it has no start on record.
            self.give_up().await;
        }
        // The abandon of what it may have in the store is on its way, and must not undo the next attempt.
        self.change_owner()?;
        self.must_abandon = false;
        self.turn = Some(self.join().await?);
        match self.answer_of_handover().await {
            Some(answer) => Ok(answer),
            None => self.attempt().await,
        }
    }

    /// The answer of the handover that came with the turn, if that is not too late.
    pub(super) async fn answer_of_handover(&mut self) -> Option<Result<Attempt>> {
        match self.take_over()? {
            Ok(answer) => Some(Ok(answer)),
            Err(late) => {
                self.abandon_late(late).await;
                None
            }
        }
    }

    /// Waits for the turn: one caller of this process asks for a key at a time.
    pub(super) async fn join(&mut self) -> Result<Turn> {
        let max = self.options.max_waiters;
        let waits = (self.options.wait != Wait::None).then_some(max);
        match self.join_now(waits) {
            Joined::Turn(turn) => Ok(turn),
            // Only as long as more and more callers turn out not to be polled.
            Joined::Overdue(_) => Err(behind(false, None, &self.shared.clock)),
            Joined::Full => Err(Error::new(
                ErrorKind::QueueFull { max },
                format!("{max} callers of this process already wait for this lock"),
            )),
            Joined::Mixed => Err(Error::new(
                ErrorKind::KeyConflict,
                "other callers of this process use the key for a lock of another mode",
            )),
            Joined::Taken(note) => Err(behind(false, note.as_ref(), &self.shared.clock)),
            // The caller before asks, or abandons a failed attempt. Both end within a request's time, if it is polled.
            // Otherwise this caller has to see that first.
            Joined::Behind(waiting) if waits.is_none() => {
                let bound = LONGEST_REQUEST + 2 * TAKEN_UP_WITHIN;
                let until = self.shared.clock.now().after(bound);
                Box::pin(self.wait_for_turn(waiting, until)).await
            }
            Joined::Behind(waiting) => {
                self.check_parking()?;
                // The release of a neighbour may ask for this caller, which may not be polled then.
                watch(&self.store);
                self.store.backend.expects_others(&self.claim.key);
                let (until, shared) = (self.wait_ends, self.shared.clone());
                Box::pin(async move {
                    // The caller with the turn may wait for the hold of an enclosing call, under another name of the store.
                    shared.shutdown.or_bounded(self.check_other_names(false)).await??;
                    self.wait_for_turn(waiting, until).await
                })
                .await
            }
        }
    }

    pub(super) fn turn_request(&self, waits: Option<usize>) -> TurnRequest {
        let cohort_ttl = self.cohort.as_ref().map(|_| self.claim.ttl);
        let plain = self.claim.mode == Mode::Exclusive && !self.claim.fair && self.claim.once_per.is_none();
        // A caller that counts its attempts must make them itself.
        let release_may_ask = plain && waits.is_some() && self.options.attempts == u32::MAX;
        let release_asks_until = release_may_ask.then_some(self.wait_ends);
        let won = self.won.as_ref().map(|won| Arc::downgrade(won) as Weak<dyn Won>);
        let (claim, sole_thread) = (self.claim.clone(), self.sole_thread);
        TurnRequest { claim, max_ahead: waits, sole_thread, cohort_ttl, release_asks_until, won }
    }

    /// Joins the queue, before callers that are not polled.
    pub(super) fn join_now(&self, waits: Option<usize>) -> Joined {
        let now = || self.shared.clock.now();
        match self.store.queue.join(&self.lock, self.turn_request(waits), now) {
            Joined::Overdue(overdue) => {
                undo(&self.store, overdue);
                self.store.queue.join(&self.lock, self.turn_request(waits), now)
            }
            joined => joined,
        }
    }

    /// Passes over the callers of this process that are not polled.
    pub(super) fn look_at_neighbours(&self) {
        undo(&self.store, self.store.queue.pass_over(&self.lock, self.shared.clock.now()));
    }

    /// The note of a hold of this process. Looks through all of them, so only a wait that has run out asks.
    fn holder_here(&self) -> Option<Note> {
        let is_of_lock = |tenure: &Arc<Tenure>| tenure.lock == self.lock && tenure.store.is_same(&self.store);
        self.shared.renewals.holds().into_iter().find(is_of_lock).map(|tenure| tenure.hold.claim.note.clone())
    }

    /// Waits for the turn. The error is contention only if the store has said that the lock is held. If the store is
    /// silent, nobody knows that.
    async fn wait_for_turn(&mut self, mut waiting: Waiting, mut until: BootInstant) -> Result<Turn> {
        let clock = self.shared.clock.clone();
        // As long as an attempt of this caller would have.
        let earliest_end = self.since.after(SHORTEST_ATTEMPT_BOUND);
        loop {
            let look_at = clock.now().after(waiting.looks_after());
            let turn_or_refusal = clock.timeout_at(until.min(look_at), &mut waiting);
            let known = match self.shared.shutdown.or(turn_or_refusal).await? {
                Some(Ok(turn)) => return Ok(turn),
                Some(Err(known)) => known,
                None if look_at < until => {
                    self.look_at_neighbours();
                    if waiting.is_behind_a_wait() {
                        // A reader could share the lock with the enclosing call, but stands behind a writer that waits for that call.
                        let shared = self.shared.clone();
                        shared.shutdown.or_bounded(Box::pin(self.check_other_names(true))).await??;
                    }
                    continue;
                }
                None => waiting.known(),
            };
            return Err(match known {
                KnownState::Contended(note) if self.options.wait != Wait::None => {
                    behind(true, note.or_else(|| self.holder_here()).as_ref(), &clock)
                }
                KnownState::Contended(note) => behind(false, note.as_ref(), &clock),
                KnownState::Failed(error) => error,
                KnownState::Nothing(_) if until < earliest_end => {
                    until = earliest_end;
                    waiting.wait_for_an_answer();
                    continue;
                }
                KnownState::Nothing(note) => Error::outage(format!(
                    "another caller of this process asks for this lock and has no answer yet, because the store does not \
                     answer it or because its future is not polled{}",
                    in_words(note.as_ref(), &clock)
                )),
            });
        }
    }
}
