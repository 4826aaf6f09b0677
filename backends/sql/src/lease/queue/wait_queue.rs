//! The wait queues of a store: decides whether a caller joins one, and how the other callers wait.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Hold, Owner, Queue, Result, Signal, Wake};
use dlock_store::PerRuntime;

use crate::connection::pending_attempts::{PendingAttempt, PendingAttempts};
use crate::connection::session::{StatementSession, StoreContext};
use crate::dialect::Dialect;
use crate::lease::queue::recent::{Contention, Recent};
use crate::lease::queue::sessions::{NoSession, QueueSessions};
use crate::lease::queue::wait::{Start, wait_and_take};
use crate::lease::queue::waiter::{HolderState, Outcome, Place, Places, Waiter};
use crate::tables::queue_name::QueueName;
use crate::tables::row::row_name;

/// The longest pause of a waiter for which there is no session.
const WITHOUT_SESSION: Duration = Duration::from_secs(1);

/// The longest pause of a waiter after a failure in a wait queue.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// How long a caller waits for a session of its process that is leaving the queue.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(100);

/// The wait queues of a store's rows.
pub(crate) struct WaitQueue<D: Dialect> {
    context: Arc<StoreContext<D>>,
    pending_attempts: Arc<PendingAttempts>,
    places: Arc<Places>,
    recent: Arc<Recent>,
    /// The database or schema in the names of the queues, once a connection of the pool has asked for it.
    scope: OnceLock<String>,
    sessions: PerRuntime<Arc<QueueSessions<D>>>,
}

/// The answer to a request that was made in a queue.
pub(crate) enum QueueAnswer {
    Answered(Attempt),
    /// The request was not sent, and left nothing.
    Skipped,
    /// The request failed, and may have won the row.
    Unknown,
}

impl<D: Dialect> WaitQueue<D> {
    pub(crate) fn new(context: &Arc<StoreContext<D>>, pending_attempts: &Arc<PendingAttempts>) -> Self {
        let (places, recent, sessions) = (Arc::default(), Arc::default(), PerRuntime::new());
        let (context, pending_attempts, scope) = (context.clone(), pending_attempts.clone(), OnceLock::new());
        Self { context, pending_attempts, places, recent, scope, sessions }
    }

    /// Whether the server has wait queues for this store.
    pub(crate) fn is_supported(&self) -> bool {
        self.context.dialect.wait_queues().is_some()
    }

    /// The place of this owner's waiter.
    pub(crate) fn place_of(&self, owner: &Owner) -> Option<Arc<Place>> {
        self.places.of(owner)
    }

    /// Whether other callers want the lock.
    pub(crate) fn contention(&self, claim: &Claim) -> Contention {
        self.recent.of(&row_name(&claim.key).name, self.context.clock.now())
    }

    /// Notes the end of a hold: others may have come meanwhile. `has_waited`: its caller had to wait for others.
    pub(crate) fn note_end(&self, hold: &Hold, has_waited: bool) {
        if self.is_supported() {
            let (row, now) = (row_name(&hold.claim.key).name, self.context.clock.now());
            self.recent.note_end(&row, now.since(hold.validity.from), has_waited, now);
        }
    }

    /// Waits for a session of this runtime that is leaving the lock's queue.
    pub(crate) async fn wait_for_leave(&self, claim: &Claim) {
        if let Ok(sessions) = self.here().await {
            let (clock, row) = (&self.context.clock, row_name(&claim.key).name);
            let leaving = sessions.leaving.ended(&row);
            // If it takes longer, the server or the runtime is blocked.
            let _ = clock.timeout_at(clock.now().after(LEAVE_TIMEOUT), leaving).await;
        }
    }

    /// Whether somebody has the turn in the lock's queue. Asks over a connection that is in no queue.
    pub(crate) async fn look_at_turn(&self, session: &mut StatementSession<D>, claim: &Claim) -> Result<bool> {
        let row = row_name(&claim.key).name;
        let scope = self.scope.get().cloned();
        let (scope, is_taken) = session
            .request(move |dialect, conn| {
                Box::pin(async move {
                    let Some(queues) = dialect.wait_queues() else { return Ok((String::new(), false)) };
                    let scope = match scope {
                        Some(scope) => scope,
                        None => queues.scope(&mut *conn).await?,
                    };
                    let is_taken = queues.is_taken(conn, &QueueName::of(&scope, &row)).await?;
                    Ok((scope, is_taken))
                })
            })
            .await?;
        let _ = self.scope.set(scope);
        if is_taken {
            self.recent.note(&row_name(&claim.key).name, self.context.clock.now());
        } else {
            self.recent.note_free(&row_name(&claim.key).name);
        }
        Ok(is_taken)
    }

    /// Takes the turn if the queue is empty, and asks for the lock. Otherwise the claim waits in the queue from now on.
    pub(crate) async fn ask(&self, claim: &Arc<Claim>, until: BootInstant) -> QueueAnswer {
        self.wait_for_leave(claim).await;
        let Ok(sessions) = self.here().await else { return QueueAnswer::Skipped };
        let Ok(session) = sessions.reserve() else { return QueueAnswer::Skipped };
        self.begin(&sessions, claim, until, Start::IfEmpty(session), None).answer().await
    }

    /// Joins the queue after an attempt that found the row taken. Returns the wake of its caller.
    pub(crate) async fn join(&self, claim: &Arc<Claim>, queue: Queue, wake: Wake) -> Wake {
        let Queue::Join { until, asks_again_within } = queue else { return wake };
        let now = self.context.clock.now();
        self.recent.note(&row_name(&claim.key).name, now);
        let session = match self.here().await {
            Ok(sessions) => sessions.reserve().map(|session| (sessions, session)),
            Err(_) => Err(NoSession::Paused),
        };
        match session {
            Ok((sessions, session)) => {
                let place = self.begin(&sessions, claim, until, Start::AtEnd(session), None);
                place.waiter.note_contended(HolderState::of(wake));
                place.wake()
            }
            Err(why) => {
                let longest = if why == NoSession::Full { WITHOUT_SESSION } else { AFTER_FAILURE };
                let longest = asks_again_within.map_or(longest, |within| within.min(longest));
                let again = now.after(longest.mul_f64(fastrand::f64()).max(Duration::from_millis(1)));
                self.poll(again, wake)
            }
        }
    }

    /// A wake that ends at `again`, or at the end of the lease if that comes first.
    fn poll(&self, again: BootInstant, mut wake: Wake) -> Wake {
        let clock = self.context.clock.clone();
        let again = wake.ask_by.map_or(again, |end| end.after(Duration::from_millis(1)).min(again));
        let signal = async move {
            clock.sleep_until(again).await;
            Ok(Signal::Ask)
        };
        wake.signal = Some(Box::pin(signal));
        wake
    }

    /// Starts a waiter. The earlier request of this owner counts as under way until its waiter can be found.
    pub(crate) fn begin(
        &self,
        sessions: &Arc<QueueSessions<D>>,
        claim: &Arc<Claim>,
        until: BootInstant,
        start: Start<D>,
        pending_attempt: Option<PendingAttempt>,
    ) -> Arc<Place> {
        let waiter = Arc::new(Waiter::new(claim, until, &self.pending_attempts));
        let place = self.places.add(&waiter);
        drop(pending_attempt);
        waiter.begin(&sessions.runtime, wait_and_take(sessions.clone(), waiter.clone(), start, self.recent.clone()));
        place
    }

    /// Records that a request of this owner is under way.
    pub(crate) fn pending_attempt(&self, owner: Owner) -> PendingAttempt {
        self.pending_attempts.begin(owner)
    }

    async fn here(&self) -> Result<Arc<QueueSessions<D>>> {
        let context = self.context.clone();
        Ok(self.sessions.get(|| async move { QueueSessions::here(&context).map(Arc::new) }).await?.value)
    }

    /// Closes the idle sessions. The others close with their waiters and holds.
    pub(crate) fn close(&self) {
        self.sessions.all().iter().for_each(|sessions| sessions.close());
        self.sessions.close();
    }
}

impl QueueAnswer {
    /// The answer for the caller that a release also asks for. `None`: the lock was not asked for.
    pub(crate) fn for_next(self) -> Option<Attempt> {
        match self {
            Self::Answered(attempt) => Some(attempt),
            Self::Skipped => None,
            // The caller asks again at once, with the same owner. If it has won the lock already, that attempt finds
            // out.
            Self::Unknown => Some(Attempt::Contended(Wake::on(async { Ok(Signal::Ask) }))),
        }
    }
}

impl Place {
    /// The answer, as soon as it is known whether others have the lock.
    pub(crate) async fn answer(self: Arc<Self>) -> QueueAnswer {
        match self.waiter.settled().await {
            None => QueueAnswer::Answered(Attempt::Contended(self.wake())),
            Some(Outcome::Granted(hold)) => QueueAnswer::Answered(Attempt::Acquired(hold)),
            Some(Outcome::Ask) => QueueAnswer::Unknown,
        }
    }
}

impl HolderState {
    pub(crate) fn of(wake: Wake) -> Self {
        Self { ask_by: wake.ask_by, lease_left: wake.lease_left, held_by: wake.held_by }
    }
}
