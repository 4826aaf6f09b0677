//! A client as the cases use it: it asks a backend as the engine does, and checks the answers.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Batch, BootInstant, Claim, Error, ErrorKind, Exchange, Hold, HoldId, Identity, Keeps, LockKey,
    Periods, Queue, Released, RunEnd, Settle, Signal, Standing, Together, Tokens, Validity, Wake,
};
use dlock_store::Clock;
use futures::future::Either;

use crate::tested::{SLACK, Stop, Tested, ensure, pause};

/// A client of the store, as one process would have it.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) backend: Arc<dyn Backend>,
    /// The suite's own clock. A client may have another clock.
    clock: Clock,
}

impl Client {
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Clock) -> Self {
        Self { backend, clock }
    }

    /// The lock that this key is in the store.
    pub(crate) fn lock_of(&self, key: &LockKey) -> Result<LockKey, Error> {
        self.backend.identify(key).map(Identity::into_lock)
    }

    pub(crate) fn keeps(&self) -> Tested<&dyn Keeps> {
        self.backend.keeps().ok_or_else(|| withdrawn("keeps"))
    }

    pub(crate) fn periods(&self) -> Tested<&dyn Periods> {
        self.backend.periods().ok_or_else(|| withdrawn("periods"))
    }

    pub(crate) fn tokens(&self) -> Tested<&dyn Tokens> {
        self.backend.tokens().ok_or_else(|| withdrawn("tokens"))
    }

    pub(crate) fn settle(&self) -> Tested<&dyn Settle> {
        self.backend.settle().ok_or_else(|| withdrawn("settle"))
    }

    pub(crate) fn batch(&self) -> Tested<&dyn Batch> {
        self.backend.batch().ok_or_else(|| withdrawn("batch"))
    }

    pub(crate) fn exchange(&self) -> Tested<&dyn Exchange> {
        self.backend.exchange().ok_or_else(|| withdrawn("exchange"))
    }

    /// One attempt. A retryable failure is retried, as the engine does.
    pub(crate) async fn ask(&self, claim: &Arc<Claim>, queue: Queue) -> Tested<Attempt> {
        let end = self.clock.now().after(SLACK);
        loop {
            match self.backend.try_acquire(claim, queue).await {
                Err(error) if error.is_retryable() && self.clock.now() < end => pause(20).await,
                answer => return Ok(answer?),
            }
        }
    }

    /// One attempt for several locks. Returns the holds if all were granted.
    pub(crate) async fn ask_all(&self, claims: &[Arc<Claim>]) -> Tested<Option<Vec<Hold>>> {
        let end = self.clock.now().after(SLACK);
        let batch = self.batch()?;
        let holds = loop {
            match batch.try_acquire_all(claims).await {
                Err(error) if error.is_retryable() && self.clock.now() < end => pause(20).await,
                Err(error) => return Err(error.into()),
                Ok(Together::Contended | Together::OneByOne) => return Ok(None),
                Ok(Together::Acquired(holds)) => break holds,
            }
        };
        let owners = holds.iter().map(|hold| hold.claim.owner);
        ensure!(owners.eq(claims.iter().map(|claim| claim.owner)), "the holds are not those of the claims, in order");
        Ok(Some(holds))
    }

    /// Takes a free lock. Fails if it is refused.
    pub(crate) async fn take(&self, claim: &Arc<Claim>) -> Tested<Hold> {
        match self.ask(claim, Queue::Leave).await? {
            Attempt::Acquired(hold) => Ok(hold),
            Attempt::Contended(_) | Attempt::AlreadyRun => Err(Stop::Failed("a free lock was refused".into())),
        }
    }

    /// Takes a lock that must become free within the bound, without a place in the queue.
    pub(crate) async fn take_within(&self, claim: &Arc<Claim>, bound: Duration) -> Tested<Hold> {
        let end = self.clock.now().after(bound);
        loop {
            let asked = self.clock.now();
            if let Attempt::Acquired(hold) = self.ask(claim, Queue::Leave).await? {
                return Ok(hold);
            }
            ensure!(asked < end, "a lock that must be free was refused for {bound:?}");
            pause(10).await;
        }
    }

    /// Asks for a lock that `other` holds. Fails if it is granted.
    pub(crate) async fn refused(&self, claim: &Arc<Claim>, queue: Queue, other: Validity) -> Tested<Wake> {
        match self.ask(claim, queue).await? {
            Attempt::Contended(wake) => Ok(wake),
            Attempt::AlreadyRun => Err(no_period()),
            Attempt::Acquired(_) => {
                self.in_time(other)?;
                Err(Stop::Failed("the lock was granted to a second owner while the first one held it".into()))
            }
        }
    }

    /// Joins the queue while `other` holds the lock. The channel for notifications may still be opening.
    pub(crate) async fn stand(&self, claim: &Arc<Claim>, until: BootInstant, other: Validity) -> Tested<Wake> {
        let end = self.clock.now().after(SLACK);
        loop {
            let wake = self.refused(claim, Queue::until(until), other).await?;
            if wake.signal.is_some() || self.clock.now() >= end {
                return Ok(wake);
            }
            pause(20).await;
        }
    }

    /// Waits as the engine does: a notification wakes it, it asks again by `ask_by`, and it also polls slowly.
    pub(crate) async fn wait(&self, claim: &Arc<Claim>, bound: Duration) -> Tested<Hold> {
        self.wait_on(claim, None, bound).await
    }

    /// The same for a claim that is already in the queue.
    pub(crate) async fn wait_on(&self, claim: &Arc<Claim>, last: Option<Wake>, bound: Duration) -> Tested<Hold> {
        self.outcome(claim, last, bound).await?.ok_or_else(no_period)
    }

    /// The same for a claim with a period. `None` means that another owner started the run.
    pub(crate) async fn outcome(
        &self,
        claim: &Arc<Claim>,
        mut last: Option<Wake>,
        bound: Duration,
    ) -> Tested<Option<Hold>> {
        let end = self.clock.now().after(bound);
        loop {
            let mut wake = match last.take() {
                Some(wake) => wake,
                None => match self.ask(claim, Queue::until(end)).await? {
                    Attempt::Acquired(hold) => return Ok(Some(hold)),
                    Attempt::Contended(wake) => wake,
                    Attempt::AlreadyRun => return Ok(None),
                },
            };
            let now = self.clock.now();
            if now >= end {
                self.backend.abandon(claim).await?;
                return Err(Stop::Failed(format!("waited {bound:?} for a lock that others release")));
            }
            let poll_interval = Duration::from_millis(if wake.signal.is_some() { 1000 } else { fastrand::u64(5..50) });
            let pause_length = wake
                .ask_by
                .map_or(poll_interval, |ask_by| ask_by.since(now).max(Duration::from_millis(5)).min(poll_interval));
            let sleep = std::pin::pin!(tokio::time::sleep(pause_length));
            match wake.signal.as_mut() {
                None => sleep.await,
                Some(signal) => match futures::future::select(signal, sleep).await {
                    Either::Left((news, _)) => {
                        wake.signal = None;
                        match news {
                            Ok(Signal::Granted(hold)) => return Ok(Some(hold)),
                            Ok(Signal::Ask) => {}
                            Err(error) if error.is_retryable() => pause(20).await,
                            Err(error) => return Err(error.into()),
                        }
                    }
                    Either::Right(_) => {}
                },
            }
            // Kept until the next attempt has its answer, so no notification is missed in between.
            last = match self.ask(claim, Queue::until(end)).await? {
                Attempt::Acquired(hold) => return Ok(Some(hold)),
                Attempt::Contended(next) => Some(next),
                Attempt::AlreadyRun => return Ok(None),
            };
            drop(wake);
        }
    }

    /// One renewal. Returns the answer unchanged.
    pub(crate) async fn renewal(&self, hold: &Hold) -> Tested<dlock_contract::Result<Standing>> {
        let mut answers = self.backend.renew(&[hold]).await;
        ensure!(answers.len() == 1, "one renewal was answered {} times", answers.len());
        answers.pop().ok_or(Stop::Late)
    }

    /// Renews a hold that must still be held. A retryable failure is retried, as the engine does.
    pub(crate) async fn renew(&self, hold: &Hold, current: Validity) -> Tested<Validity> {
        let end = self.clock.now().after(SLACK);
        loop {
            self.in_time(current)?;
            match self.renewal(hold).await? {
                Ok(Standing::Renewed(validity)) => return Ok(validity),
                Ok(Standing::Lost) => {
                    self.in_time(current)?;
                    return Err(Stop::Failed("the renewal of a held lock returned Lost".into()));
                }
                Err(error) if error.is_retryable() && self.clock.now() < end => pause(20).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Fails if the store ends the lease of a hold before its holder stops believing in it.
    pub(crate) async fn lasts(&self, hold: &Hold, belief: Validity) -> Tested {
        let end = self.clock.now().after(SLACK);
        let state = loop {
            match self.backend.look(&hold.claim.key).await {
                Err(error) if error.is_retryable() && self.clock.now() < end => pause(20).await,
                answer => break answer?,
            }
        };
        // Read after the answer: so a slow machine may hide a short lease, and never makes one.
        let now = self.clock.now();
        let id = HoldId::of(&hold.claim.owner);
        let shown = match &state.holders[..] {
            [only] => Some(only),
            holders => holders.iter().find(|holder| holder.id == Some(id)),
        };
        // A renewal tells whether it is held at all.
        let Some(shown) = shown else { return Ok(()) };
        let Some(left) = shown.lease_left else {
            ensure!(hold.session.is_some(), "a hold that lives in no session is shown without the rest of its lease");
            return Err(Stop::NotApplicable("the lease is that of a session".into()));
        };
        // The store may count in steps.
        let early = belief.deadline().since(now.after(left + self.backend.profile().ttl.step));
        ensure!(
            early.is_zero(),
            "a lease of {:?} ends {early:?} before its holder stops believing in it",
            belief.granted
        );
        Ok(())
    }

    /// The same, unless the lease is that of a session.
    pub(crate) async fn lasts_if_told(&self, hold: &Hold, belief: Validity) -> Tested {
        match self.lasts(hold, belief).await {
            Err(Stop::NotApplicable(_)) => Ok(()),
            answer => answer,
        }
    }

    /// [`Self::lasts`] after the grant, and after a renewal. Other cases look at that renewal's answer.
    pub(crate) async fn kept_as_believed(&self, hold: &Hold) -> Tested {
        self.lasts(hold, hold.validity).await?;
        match self.renewal(hold).await? {
            Ok(Standing::Renewed(validity)) => self.lasts(hold, validity).await,
            _ => Ok(()),
        }
    }

    /// Renews a hold that must be lost. If its session broke, the answer may be an error for a moment first.
    pub(crate) async fn lost(&self, hold: &Hold) -> Tested {
        let end = self.clock.now().after(SLACK);
        loop {
            match self.renewal(hold).await? {
                Ok(Standing::Lost) => return Ok(()),
                Ok(Standing::Renewed(_)) => {
                    return Err(Stop::Failed("a lost lock was renewed".into()));
                }
                Err(error) => ensure!(self.clock.now() < end, "a lost lock was not reported as Lost: {error}"),
            }
            pause(50).await;
        }
    }

    /// Releases the lock, and asks again after a retryable failure, as the engine does. [`Self::end`] checks the first answer.
    pub(crate) async fn give_back(&self, hold: &Hold) -> Tested {
        let end = self.clock.now().after(SLACK);
        loop {
            match self.backend.release(hold).await {
                Err(error) if error.is_retryable() && self.clock.now() < end => pause(20).await,
                answer => return Ok(answer.map(drop)?),
            }
        }
    }

    /// Ends the hold in the given way.
    pub(crate) async fn end(&self, hold: &Hold, keep: Option<Duration>, run: Option<RunEnd>) -> Tested {
        let released = match (keep, run) {
            (Some(time), run) => self.keeps()?.keep(hold, time, run).await?,
            (None, Some(run)) => self.periods()?.end_run(hold, run).await?,
            (None, None) => self.backend.release(hold).await?,
        };
        if released == Released::NotOwner {
            self.in_time(hold.validity)?;
        }
        ensure!(released == Released::Released, "the end of a held lock returned {released:?}");
        Ok(())
    }

    /// Asks for a key that another family of modes uses. The answer must be a conflict that no retry helps.
    pub(crate) async fn conflict(&self, claim: &Arc<Claim>, queue: Queue, holder: &Hold) -> Tested {
        let end = self.clock.now().after(SLACK);
        loop {
            let answer = match self.backend.try_acquire(claim, queue).await {
                Err(error) if error.is_retryable() && self.clock.now() < end => {
                    pause(20).await;
                    continue;
                }
                Err(error) if *error.kind() == ErrorKind::KeyConflict => {
                    ensure!(!error.is_retryable(), "a conflict is reported as retryable");
                    return Ok(());
                }
                Err(error) => error.to_string(),
                Ok(attempt) => format!("{attempt:?}"),
            };
            self.in_time(holder.validity)?;
            let (asked, held) = (claim.mode, holder.claim.mode);
            return Err(Stop::Failed(format!("{asked:?} was asked for beside {held:?}, and the answer was {answer}")));
        }
    }

    /// Ends the run if the lease has run out meanwhile.
    pub(crate) fn in_time(&self, validity: Validity) -> Tested {
        if self.clock.now() >= validity.deadline() { Err(Stop::Late) } else { Ok(()) }
    }
}

/// The error of a client that does not offer a power that another client of this store offers.
fn withdrawn(power: &str) -> Stop {
    Stop::Failed(format!("a client offered the power `{power}`, and another one does not"))
}

fn no_period() -> Stop {
    Stop::Failed("a claim got AlreadyRun although nobody has started its run".into())
}
