//! The sessions of one runtime that stand in waiting rooms. They are beside the pool: a session in a room belongs to one
//! waiter or hold, and a pool whose connections all waited could serve nobody.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::engine::CallerRuntime;
use dlock_contract::{BootInstant, Error, Result};

use crate::connection::session::{ANSWER_LIMIT, StatementSession, StoreContext};
use crate::dialect::{Dialect, Rooms};
use crate::lease::room::leaving::Leaving;
use crate::tables::room_name::RoomName;

/// After a failure in a room no other waiter enters one for so long. Otherwise each poll would open a connection that the
/// server refuses.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The sessions of one runtime.
pub(crate) struct RoomSessions<D: Dialect> {
    pub(crate) context: Arc<StoreContext<D>>,
    pub(crate) place: CallerRuntime,
    max: usize,
    /// How many there are, idle ones included.
    open: Arc<AtomicUsize>,
    state: Mutex<RoomSessionsState<D>>,
    pub(crate) leaving: Arc<Leaving>,
}

struct RoomSessionsState<D: Dialect> {
    idle: Vec<RoomSession<D>>,
    /// Whether a task closes those that are idle for too long.
    is_watched: bool,
    closed_until: BootInstant,
    /// The store was closed: sessions that leave their rooms now are closed too.
    is_over: bool,
}

/// A session that is in a room, or may enter one.
pub(crate) struct RoomSession<D: Dialect> {
    pub(crate) session: StatementSession<D>,
    place: String,
    idle_since: BootInstant,
    _permit: Permit,
}

/// The right to have a session.
pub(crate) enum Seat<D: Dialect> {
    /// One that has been in a room before.
    Used(Box<RoomSession<D>>),
    /// One that is to be opened.
    New(Permit),
}

/// The reason why a waiter must poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSeat {
    /// There are as many sessions as may be.
    Full,
    /// A room failed a moment ago.
    Closed,
}

/// Counts one session.
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<D: Dialect> RoomSessions<D> {
    /// Those of the present runtime.
    pub(crate) fn here(context: &Arc<StoreContext<D>>) -> Result<Self> {
        let state = RoomSessionsState {
            idle: Vec::new(),
            is_watched: false,
            closed_until: BootInstant::from_nanos(0),
            is_over: false,
        };
        let max = context.settings.max_connections;
        Ok(Self {
            context: context.clone(),
            place: CallerRuntime::here()?,
            max,
            open: Arc::default(),
            state: Mutex::new(state),
            leaving: Arc::default(),
        })
    }

    /// The right to have a session now.
    pub(crate) fn seat(&self) -> Result<Seat<D>, NoSeat> {
        let mut state = self.lock();
        if state.closed_until > self.context.clock.now() {
            return Err(NoSeat::Closed);
        }
        if let Some(idle) = state.idle.pop() {
            return Ok(Seat::Used(Box::new(idle)));
        }
        let more = |open: usize| (open < self.max).then_some(open + 1);
        match self.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(Seat::New(Permit(self.open.clone()))),
            Err(_) => Err(NoSeat::Full),
        }
    }

    /// A session that is ready to enter a room.
    pub(crate) async fn sit(&self, seat: Seat<D>) -> Result<RoomSession<D>> {
        let permit = match seat {
            Seat::New(permit) => permit,
            Seat::Used(mut used) => {
                if used.session.is_usable().await {
                    return Ok(*used);
                }
                let RoomSession { session, _permit, .. } = *used;
                session.close().await;
                _permit
            }
        };
        let mut session = StatementSession::open(&self.context).await?;
        session.is_bound = true;
        let place = session.request(|dialect, conn| match dialect.rooms() {
            Some(rooms) => rooms.set_up(conn),
            None => Box::pin(async { Ok(String::new()) }),
        });
        let place = bounded(&self.context, place).await?;
        Ok(RoomSession { session, place, idle_since: self.context.clock.now(), _permit: permit })
    }

    /// Keeps a session that is in no room.
    pub(crate) fn put_back(self: &Arc<Self>, mut session: RoomSession<D>) {
        if session.session.broken {
            return;
        }
        session.idle_since = self.context.clock.now();
        let mut state = self.lock();
        if state.is_over {
            drop(state);
            self.place.spawn(session.session.close());
            return;
        }
        state.idle.push(session);
        if std::mem::replace(&mut state.is_watched, true) {
            return;
        }
        drop(state);
        self.place.spawn(self.clone().close_idle());
    }

    /// Closes sessions that were idle for too long, until none is left.
    async fn close_idle(self: Arc<Self>) {
        let (clock, most) = (&self.context.clock, self.context.settings.idle_timeout);
        loop {
            let now = clock.now();
            let (old, next) = {
                let mut state = self.lock();
                let old: Vec<_> = state.idle.extract_if(.., |idle| now.since(idle.idle_since) >= most).collect();
                let next = state.idle.iter().map(|idle| idle.idle_since.after(most)).min();
                state.is_watched = next.is_some();
                (old, next)
            };
            for idle in old {
                idle.session.close().await;
            }
            let Some(next) = next else { return };
            clock.sleep_until(next).await;
        }
    }

    /// Lets no more waiters in for a while.
    pub(crate) fn close_for_a_while(&self) {
        self.lock().closed_until = self.context.clock.now().after(AFTER_FAILURE);
    }

    /// Closes the sessions that are in no room.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_over = true;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        for idle in idle {
            self.place.spawn(async move { idle.session.close().await });
        }
    }

    fn lock(&self) -> MutexGuard<'_, RoomSessionsState<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Dialect> RoomSession<D> {
    /// The room of a row.
    pub(crate) fn room(&self, row: &str) -> RoomName {
        RoomName::of(&self.place, row)
    }

    /// Enters a room that is empty. False if it is not.
    pub(crate) async fn try_to_enter(&mut self, room: &RoomName) -> Result<bool> {
        let context = self.session.context.clone();
        bounded(&context, self.enter(room, Duration::ZERO)).await
    }

    /// Enters a room, and waits for that until then.
    pub(crate) async fn enter_by(&mut self, room: &RoomName, until: BootInstant) -> Result<bool> {
        let context = self.session.context.clone();
        let longest = context.dialect.rooms().map_or(Duration::ZERO, Rooms::longest_wait);
        loop {
            let wait = until.since(context.clock.now()).min(longest);
            if bounded_after(&context, wait, self.enter(room, wait)).await? {
                return Ok(true);
            }
            if context.clock.now() >= until {
                return Ok(false);
            }
        }
    }

    async fn enter(&mut self, room: &RoomName, wait: Duration) -> Result<bool> {
        let room = room.clone();
        let request = self.session.request(move |dialect, conn| {
            Box::pin(async move {
                match dialect.rooms() {
                    Some(rooms) => rooms.enter(conn, &room, wait).await,
                    None => Ok(false),
                }
            })
        });
        request.await
    }

    /// Leaves a room. If that fails, the session must be dropped, which ends its stay too.
    pub(crate) async fn leave(&mut self, room: &RoomName) -> Result<()> {
        let (context, room) = (self.session.context.clone(), room.clone());
        let leave = self.session.request(move |dialect, conn| {
            Box::pin(async move {
                match dialect.rooms() {
                    Some(rooms) => rooms.leave(conn, &room).await,
                    None => Ok(false),
                }
            })
        });
        if bounded(&context, leave).await? {
            return Ok(());
        }
        self.session.broken = true;
        Err(Error::outage("the session was not in the waiting room"))
    }
}

/// Ends a request that the server does not answer. Its session is broken then.
pub(crate) async fn bounded<D: Dialect, T>(
    context: &StoreContext<D>,
    request: impl Future<Output = Result<T>>,
) -> Result<T> {
    bounded_after(context, Duration::ZERO, request).await
}

/// The same for a request that waits in the server.
async fn bounded_after<D: Dialect, T>(
    context: &StoreContext<D>,
    wait: Duration,
    request: impl Future<Output = Result<T>>,
) -> Result<T> {
    let late = || Error::outage(format!("the server did not answer within {ANSWER_LIMIT:?}"));
    let until = context.clock.now().after(wait).after(ANSWER_LIMIT);
    context.clock.timeout_at(until, request).await.unwrap_or_else(|| Err(late()))
}
