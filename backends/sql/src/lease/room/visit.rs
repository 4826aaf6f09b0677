//! A visit to a waiting room: what a hold lives in that came out of a room.

use std::sync::{Arc, Mutex, PoisonError};

use dlock_contract::{Claim, Hold, Released};

use crate::dialect::Dialect;
use crate::lease::room::sessions::{RoomSession, RoomSessions};
use crate::room_name::RoomName;
use crate::session::GrantingServer;

/// How many holds one visit has at most. Then the room is left, because others may stand in it.
const MOST_HOLDS: u32 = 8;

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
    holds: u32,
}

impl<D: Dialect> dlock_contract::Session for Visit<D> {}

impl<D: Dialect> Inside<D> {
    /// A session that has just entered this room.
    pub(crate) fn new(sessions: Arc<RoomSessions<D>>, session: RoomSession<D>, room: RoomName) -> Self {
        Self { sessions, session, room, holds: 0 }
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

    /// Frees the row of the visit's hold and leaves the room, in one message. `None`: nothing is known of the row, and the
    /// session is dropped, which ends its stay.
    pub(crate) async fn free(self: Box<Self>, claim: &Claim) -> Option<(Released, RoomSession<D>)> {
        let Self { mut session, room, .. } = *self;
        let released = session.free_and_leave(claim, &room).await?;
        Some((released, session))
    }

    /// Leaves the room, and keeps the session for other waiters. The row must be free before.
    pub(crate) async fn leave(self: Box<Self>) {
        let Self { sessions, mut session, room, .. } = *self;
        if session.leave(&room).await.is_ok() {
            sessions.put_back(session);
        }
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
