//! The waiting room of a store: who may enter, and how the others wait.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Hold, Owner, PerRuntime, Queue, Result, Signal, Wake};

use crate::connection::pending_attempts::{PendingAttempt, PendingAttempts};
use crate::connection::session::{StatementSession, StoreContext};
use crate::dialect::Dialect;
use crate::lease::room::recent::{Outlook, Recent};
use crate::lease::room::sessions::{NoSeat, RoomSessions};
use crate::lease::room::stand::{Begin, stand};
use crate::lease::room::waiter::{Outcome, Ticket, Tickets, Told, Waiter};
use crate::tables::room_name::RoomName;
use crate::tables::row::row_name;

/// The longest pause of a waiter for which there is no session.
const WITHOUT_SESSION: Duration = Duration::from_secs(1);

/// The longest pause of a waiter after a failure in a room.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// How long a caller waits for a session of its process that is leaving the room.
const DEPARTURE: Duration = Duration::from_millis(100);

/// The waiting room of a store.
pub(crate) struct WaitingRoom<D: Dialect> {
    context: Arc<StoreContext<D>>,
    pending_attempts: Arc<PendingAttempts>,
    tickets: Arc<Tickets>,
    recent: Arc<Recent>,
    /// By which rooms are named, once a connection of the pool has asked for it.
    place: OnceLock<String>,
    sessions: PerRuntime<Arc<RoomSessions<D>>>,
}

/// The answer to a question that was asked in the room.
pub(crate) enum RoomAnswer {
    Answered(Attempt),
    /// The question was not asked, and left nothing.
    Skipped,
    /// It failed, and may have won the row.
    Unknown,
}

impl<D: Dialect> WaitingRoom<D> {
    pub(crate) fn new(context: &Arc<StoreContext<D>>, pending_attempts: &Arc<PendingAttempts>) -> Self {
        let (tickets, recent, sessions) = (Arc::default(), Arc::default(), PerRuntime::new());
        let (context, pending_attempts, place) = (context.clone(), pending_attempts.clone(), OnceLock::new());
        Self { context, pending_attempts, tickets, recent, place, sessions }
    }

    /// Whether waiters of this store stand in rooms.
    pub(crate) fn is_open(&self) -> bool {
        self.context.dialect.rooms().is_some()
    }

    /// This owner's waiter.
    pub(crate) fn ticket_of(&self, owner: &Owner) -> Option<Arc<Ticket>> {
        self.tickets.of(owner)
    }

    /// The outlook for the lock: whether others want it.
    pub(crate) fn outlook(&self, claim: &Claim) -> Outlook {
        self.recent.of(&row_name(&claim.key).name, self.context.clock.now())
    }

    /// A hold has ended: others may have come meanwhile. `has_waited`: its caller waited for others before.
    pub(crate) fn note_end(&self, hold: &Hold, has_waited: bool) {
        if self.is_open() {
            let (row, now) = (row_name(&hold.claim.key).name, self.context.clock.now());
            self.recent.note_end(&row, now.since(hold.validity.from), has_waited, now);
        }
    }

    /// Waits for a session of this runtime that is leaving the lock's room.
    pub(crate) async fn departure(&self, claim: &Claim) {
        if let Ok(sessions) = self.here().await {
            let (clock, row) = (&self.context.clock, row_name(&claim.key).name);
            let leaving = sessions.leaving.ended(&row);
            // If it takes longer, the server or the runtime stands still.
            let _ = clock.timeout_at(clock.now().after(DEPARTURE), leaving).await;
        }
    }

    /// Whether somebody is in the lock's room, by a connection that is in none.
    pub(crate) async fn is_occupied(&self, session: &mut StatementSession<D>, claim: &Claim) -> Result<bool> {
        let row = row_name(&claim.key).name;
        let place = self.place.get().cloned();
        let (place, is_occupied) = session
            .request(move |dialect, conn| {
                Box::pin(async move {
                    let Some(rooms) = dialect.rooms() else { return Ok((String::new(), false)) };
                    let place = match place {
                        Some(place) => place,
                        None => rooms.place(&mut *conn).await?,
                    };
                    let is_occupied = rooms.is_occupied(conn, &RoomName::of(&place, &row)).await?;
                    Ok((place, is_occupied))
                })
            })
            .await?;
        let _ = self.place.set(place);
        if is_occupied {
            self.recent.note(&row_name(&claim.key).name, self.context.clock.now());
        } else {
            self.recent.note_free(&row_name(&claim.key).name);
        }
        Ok(is_occupied)
    }

    /// Asks for the lock in the room, and waits there from now on if others have it.
    pub(crate) async fn ask(&self, claim: &Arc<Claim>, until: BootInstant) -> RoomAnswer {
        self.departure(claim).await;
        let Ok(sessions) = self.here().await else { return RoomAnswer::Skipped };
        let Ok(seat) = sessions.seat() else { return RoomAnswer::Skipped };
        self.begin(&sessions, claim, until, Begin::Perhaps(seat), None).answer().await
    }

    /// Waits in the room from now on, after an attempt that found the row taken. Returns the news of that.
    pub(crate) async fn stand(&self, claim: &Arc<Claim>, queue: Queue, wake: Wake) -> Wake {
        let Queue::Join { until, asks_again_within } = queue else { return wake };
        let now = self.context.clock.now();
        self.recent.note(&row_name(&claim.key).name, now);
        let seat = match self.here().await {
            Ok(sessions) => sessions.seat().map(|seat| (sessions, seat)),
            Err(_) => Err(NoSeat::Closed),
        };
        match seat {
            Ok((sessions, seat)) => {
                let ticket = self.begin(&sessions, claim, until, Begin::Behind(seat), None);
                ticket.waiter.note_contended(Told::of(wake));
                ticket.wake()
            }
            Err(why) => {
                let longest = if why == NoSeat::Full { WITHOUT_SESSION } else { AFTER_FAILURE };
                let longest = asks_again_within.map_or(longest, |within| within.min(longest));
                let again = now.after(longest.mul_f64(fastrand::f64()).max(Duration::from_millis(1)));
                self.poll(again, wake)
            }
        }
    }

    /// News that come at that time, or at the end of the lease.
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

    /// Begins to wait. The earlier request of this owner counts as under way until its waiter can be found.
    pub(crate) fn begin(
        &self,
        sessions: &Arc<RoomSessions<D>>,
        claim: &Arc<Claim>,
        until: BootInstant,
        begin: Begin<D>,
        pending_attempt: Option<PendingAttempt>,
    ) -> Arc<Ticket> {
        let waiter = Arc::new(Waiter::new(claim, until, &self.pending_attempts));
        let ticket = self.tickets.add(&waiter);
        drop(pending_attempt);
        waiter.begin(&sessions.place, stand(sessions.clone(), waiter.clone(), begin, self.recent.clone()));
        ticket
    }

    /// Records that a request of this owner is under way.
    pub(crate) fn pending_attempt(&self, owner: Owner) -> PendingAttempt {
        self.pending_attempts.begin(owner)
    }

    async fn here(&self) -> Result<Arc<RoomSessions<D>>> {
        let context = self.context.clone();
        Ok(self.sessions.get(|| async move { RoomSessions::here(&context).map(Arc::new) }).await?.value)
    }

    /// Closes the sessions that are in no room. The others close with their waiters and holds.
    pub(crate) fn close(&self) {
        self.sessions.all().iter().for_each(|sessions| sessions.close());
        self.sessions.clear();
    }
}

impl RoomAnswer {
    /// The answer for the next caller of a release. `None`: the lock was not asked for.
    pub(crate) fn for_next(self) -> Option<Attempt> {
        match self {
            Self::Answered(attempt) => Some(attempt),
            Self::Skipped => None,
            // The caller asks at once, with the same owner: if the lock is its own already, it hears so.
            Self::Unknown => Some(Attempt::Contended(Wake::on(async { Ok(Signal::Ask) }))),
        }
    }
}

impl Ticket {
    /// The answer, as soon as it is known whether others have the lock.
    pub(crate) async fn answer(self: Arc<Self>) -> RoomAnswer {
        match self.waiter.settled().await {
            None => RoomAnswer::Answered(Attempt::Contended(self.wake())),
            Some(Outcome::Granted(hold)) => RoomAnswer::Answered(Attempt::Acquired(hold)),
            Some(Outcome::Ask) => RoomAnswer::Unknown,
        }
    }
}

impl Told {
    pub(crate) fn of(wake: Wake) -> Self {
        Self { ask_by: wake.ask_by, lease_left: wake.lease_left, held_by: wake.held_by }
    }
}
