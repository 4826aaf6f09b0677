//! One attempt to get a lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dlock_contract::{Attempt, BootInstant, Claim, Error, ErrorKind, Hold, Mode, Queue, Result, Validity, Wake};

use crate::lock::claim_state::{ClaimSession, ClaimState, HoldSession, StateAccess};
use crate::lock::shared::GIVEN_WAY_FOR;
use crate::lock::shared::Shared;
use crate::lock::try_result::TryResult;
use crate::lock::wait::Awaited;

/// How often an attempt begins again because another claim changed the lock between the read and the transaction.
const MAX_TRIES: u32 = 4;

impl Shared {
    pub(crate) async fn attempt(
        self: Arc<Self>,
        claim: Arc<Claim>,
        queue: Queue,
        state: Arc<ClaimState>,
        access: StateAccess,
    ) -> Result<Attempt> {
        let mut session = access.await;
        let waits = queue != Queue::Leave;
        for _ in 0..MAX_TRIES {
            let asked = self.http.clock().now();
            let result = self.try_once(&claim, &state, &mut session, waits).await.map_err(|error| {
                // Without a session the claim has nothing in the store. If the error was never sent, no abandon follows.
                if session.is_none() {
                    self.states.forget_empty(claim.owner, &state);
                    return error;
                }
                // The claim has a session, even if the last request was never sent. So the engine must abandon it.
                if error.may_have_left() { error } else { Error::outage(error.message().to_owned()).because(error) }
            })?;
            match result {
                TryResult::Won { token, slot } => return self.won(claim, &state, session.as_ref(), token, slot),
                TryResult::Held { awaited, index, by } if waits => {
                    self.streaks.end(&claim.key);
                    // Foreign clients have their session when the lock becomes free. Without one, a waiter would always be late.
                    if self.http.settings().literal {
                        if self.leaves_time(queue, asked) {
                            self.live_session_id(&claim, &mut session, false).await?;
                        }
                    } else if state.is_passed_over.swap(false, Ordering::Relaxed) {
                        self.leave_mark(&claim, &state, &mut session).await?;
                    }
                    return Ok(Attempt::Contended(self.wake(awaited, index, by)));
                }
                TryResult::Held { by, .. } => {
                    self.leave(&claim, &state, &mut session).await?;
                    return Ok(Attempt::Contended(Wake::poll().held_by(by)));
                }
                TryResult::GivesWay { index } => {
                    let now = self.http.clock().now();
                    self.streaks.gives_way(&claim.key, now);
                    let wake = self.wake(Awaited::Lock(state.clone()), index, None);
                    return Ok(Attempt::Contended(wake.ask_by(now.after(GIVEN_WAY_FOR))));
                }
                TryResult::Delayed => {
                    if queue == Queue::Leave {
                        self.leave(&claim, &state, &mut session).await?;
                    }
                    return Ok(Attempt::Contended(self.ask_again_soon()));
                }
                TryResult::Retry => {}
            }
        }
        if queue == Queue::Leave {
            self.leave(&claim, &state, &mut session).await?;
        }
        Ok(Attempt::Contended(self.ask_again_soon()))
    }

    /// Whether another request, which takes twice as long as the look of this try, would end within the wait. One that the end
    /// of the wait cuts short would hide that the lock is held.
    fn leaves_time(&self, queue: Queue, asked: BootInstant) -> bool {
        let now = self.http.clock().now();
        matches!(queue, Queue::Join { until, .. } if now.after(now.since(asked) * 2) < until)
    }

    async fn try_once(
        &self,
        claim: &Claim,
        state: &Arc<ClaimState>,
        session: &mut Option<ClaimSession>,
        waits: bool,
    ) -> Result<TryResult> {
        match claim.mode {
            Mode::Exclusive => self.try_lock(claim, state, session, waits).await,
            Mode::Permits(limit) => self.try_permit(claim, limit.get(), &state.name, session).await,
            Mode::Read | Mode::Write => {
                Err(Error::new(ErrorKind::Internal, "readers and writers are not locked in Consul"))
            }
        }
    }

    fn won(
        &self,
        claim: Arc<Claim>,
        state: &ClaimState,
        session: Option<&ClaimSession>,
        token: u64,
        slot: Option<u32>,
    ) -> Result<Attempt> {
        let session = session.ok_or_else(|| Error::new(ErrorKind::Internal, "a lock was won without a session"))?;
        self.streaks.held(&claim.key, self.http.clock().now());
        let validity = Validity::new(session.confirmed, claim.ttl);
        let (name, session_id, watch) = (state.name.clone(), session.id.clone(), self.watch.clone());
        let hold_session = HoldSession { name, session_id, is_permit: slot.is_some(), watch };
        let hold = Hold::new(claim, token, validity)?.with_session(Arc::new(hold_session));
        Ok(Attempt::Acquired(match slot {
            Some(slot) => hold.with_slot(slot),
            None => hold,
        }))
    }
}
