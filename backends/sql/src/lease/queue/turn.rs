//! A turn in a wait queue, and the holds that live in it.

use std::sync::{Arc, Mutex, PoisonError};

use dlock_contract::Hold;

use crate::connection::session::GrantingServer;
use crate::dialect::Dialect;
use crate::lease::queue::sessions::{QueueSession, QueueSessions};
use crate::tables::queue_name::QueueName;

/// The most holds of one turn. Then the session leaves the queue, because others may wait in it.
pub(crate) const HOLDS_PER_TURN: u32 = 8;

/// The session of a hold that was granted in a turn. The session still has the turn.
pub(crate) struct TurnSession<D: Dialect> {
    granting_server: Arc<GrantingServer>,
    /// Taken by the end of the hold. If it is dropped before, the server gives the turn to the next waiter.
    turn: Mutex<Option<Box<Turn<D>>>>,
}

/// A turn: a session at the head of a wait queue.
pub(crate) struct Turn<D: Dialect> {
    pub(crate) sessions: Arc<QueueSessions<D>>,
    pub(crate) session: QueueSession<D>,
    pub(crate) queue: QueueName,
    row: Box<str>,
    /// Whether its waiter had to wait for others.
    pub(crate) has_waited: bool,
    holds: u32,
}

impl<D: Dialect> dlock_contract::Session for TurnSession<D> {}

impl<D: Dialect> Turn<D> {
    /// The turn of a session that has just come to the head of this queue.
    pub(crate) fn new(sessions: Arc<QueueSessions<D>>, session: QueueSession<D>, queue: QueueName, row: &str) -> Self {
        Self { sessions, session, queue, row: row.into(), has_waited: false, holds: 0 }
    }

    /// Whether the turn may have one more hold.
    pub(crate) fn may_hold_again(&self) -> bool {
        self.holds < HOLDS_PER_TURN
    }

    /// Attaches the turn to one more hold.
    pub(crate) fn attach_to(mut self: Box<Self>, hold: Hold) -> Hold {
        self.holds += 1;
        hold.with_session(Arc::new(TurnSession {
            granting_server: self.session.session.granting_server.clone(),
            turn: Mutex::new(Some(self)),
        }))
    }

    /// Leaves the queue, and keeps the session for other waiters. The row must be free before. The leave counts from
    /// this call, and not from the first poll.
    pub(crate) fn leave(self: Box<Self>) -> impl Future<Output = ()> + Send + 'static {
        let (sessions, leave) = (self.sessions.clone(), self.sessions.leaving.begin(&self.row));
        async move {
            if let Some(session) = self.leave_with_session().await {
                sessions.put_back(session);
            }
            drop(leave);
        }
    }

    /// Leaves the queue, and returns the session, which is used again at once. `None` if it has ended.
    pub(crate) async fn leave_with_session(self: Box<Self>) -> Option<QueueSession<D>> {
        let Self { mut session, queue, .. } = *self;
        session.leave(&queue).await.ok()?;
        Some(session)
    }
}

/// Takes the turn out of a hold. `None` if the hold was not granted in a turn, or has ended.
pub(crate) fn turn_of<D: Dialect>(hold: &Hold) -> Option<Box<Turn<D>>> {
    hold.session::<TurnSession<D>>()?.turn.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The server that granted a hold.
pub(crate) fn granting_server_of<D: Dialect>(hold: &Hold) -> Option<Arc<GrantingServer>> {
    match hold.session::<TurnSession<D>>() {
        Some(turn) => Some(turn.granting_server.clone()),
        None => hold.shared_session(),
    }
}
