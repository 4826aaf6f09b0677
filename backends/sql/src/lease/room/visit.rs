//! A visit to a waiting room: what a hold lives in that came out of a room.

use std::sync::{Arc, Mutex, PoisonError};

use dlock_contract::Hold;

use crate::connection::session::GrantingServer;
use crate::dialect::Dialect;
use crate::lease::room::sessions::{RoomSession, RoomSessions};
use crate::tables::room_name::RoomName;

/// How many holds one visit has at most. Then the room is left, because others may stand in it.
pub(crate) const MOST_HOLDS: u32 = 8;

/// The session of a hold that came out of a room. The session is still in the room.
pub(crate) struct Visit<D: Dialect> {
    granting_server: Arc<GrantingServer>,
    /// Taken by the end of the hold. If it is dropped before, the server frees the room.
    inside: Mutex<Option<Box<Inside<D>>>>,
}

/// A session in a room.
pub(crate) struct Inside<D: Dialect> {
    pub(crate) sessions: Arc<RoomSessions<D>>,
    pub(crate) session: RoomSession<D>,
    pub(crate) room: RoomName,
    row: Box<str>,
    /// Whether it has waited for others.
    pub(crate) has_waited: bool,
    holds: u32,
}

impl<D: Dialect> dlock_contract::Session for Visit<D> {}

impl<D: Dialect> Inside<D> {
    /// A session that has just entered this room.
    pub(crate) fn new(sessions: Arc<RoomSessions<D>>, session: RoomSession<D>, room: RoomName, row: &str) -> Self {
        Self { sessions, session, room, row: row.into(), has_waited: false, holds: 0 }
    }

    /// Whether the visit may have one more hold.
    pub(crate) fn may_go_on(&self) -> bool {
        self.holds < MOST_HOLDS
    }

    /// One more hold of this visit.
    pub(crate) fn lends(mut self: Box<Self>, hold: Hold) -> Hold {
        self.holds += 1;
        hold.with_session(Arc::new(Visit {
            granting_server: self.session.session.granting_server.clone(),
            inside: Mutex::new(Some(self)),
        }))
    }

    /// Leaves the room, and keeps the session for other waiters. The row must be free before.
    /// The leaving counts as begun before this is polled.
    pub(crate) fn leave(self: Box<Self>) -> impl Future<Output = ()> + Send + 'static {
        let (sessions, departure) = (self.sessions.clone(), self.sessions.leaving.begin(&self.row));
        async move {
            if let Some(session) = self.leave_with_session().await {
                sessions.put_back(session);
            }
            drop(departure);
        }
    }

    /// The same for a session that is used again at once. `None` if it has ended.
    pub(crate) async fn leave_with_session(self: Box<Self>) -> Option<RoomSession<D>> {
        let Self { mut session, room, .. } = *self;
        session.leave(&room).await.ok()?;
        Some(session)
    }
}

/// Takes the visit out of a hold. `None` if it did not come out of a room, or has ended.
pub(crate) fn inside_of<D: Dialect>(hold: &Hold) -> Option<Box<Inside<D>>> {
    hold.session::<Visit<D>>()?.inside.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The server that granted a hold.
pub(crate) fn granting_server_of<D: Dialect>(hold: &Hold) -> Option<Arc<GrantingServer>> {
    match hold.session::<Visit<D>>() {
        Some(visit) => Some(visit.granting_server.clone()),
        None => hold.shared_session(),
    }
}
