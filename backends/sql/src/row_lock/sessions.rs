//! The sessions of a store: each is one connection, and has one hold or none.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Result};
use dlock_store::background;
use futures::future::join_all;

use super::dialect::{RowDialect, RowId};
use crate::connection::misread::unless_misread;
use crate::connection::session::StoreContext;
use crate::dialect::SessionMark;
use crate::session_hold::opening::opened;

/// How long an end of a hold waits for a statement of the body that is still under way. After that the session is ended, and the
/// statement with it.
pub(super) const STATEMENT_TIMEOUT: Duration = Duration::from_millis(250);
/// The most sessions without a hold that are kept.
const MAX_IDLE_SESSIONS: usize = 16;
/// How long a goodbye may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A session without a statement under way, for the transaction of one hold.
pub(super) struct RowSession<D: RowDialect> {
    pub(super) conn: D::Conn,
    pub(super) number: i64,
    pub(super) mark: Option<SessionMark>,
    /// The server at its other end.
    pub(super) server: Arc<str>,
    /// After so much silence the server ends it.
    pub(super) ttl: Duration,
    /// When it last had an answer.
    used: BootInstant,
    opened: BootInstant,
}

/// The sessions without a hold.
pub(super) struct RowSessions<D: RowDialect> {
    pub(super) context: Arc<StoreContext<D>>,
    idle: Mutex<Vec<RowSession<D>>>,
}

impl<D: RowDialect> RowSessions<D> {
    pub(super) fn new(context: &Arc<StoreContext<D>>) -> Self {
        Self { context: context.clone(), idle: Mutex::default() }
    }

    /// One that was used before, or a new one, and whether it is new. The server may have ended one that was used.
    pub(super) async fn get(&self, ttl: Duration) -> Result<(RowSession<D>, bool)> {
        let kept = {
            let mut idle = self.idle();
            let place = idle.iter().rposition(|open| open.ttl == ttl && self.is_fresh(open));
            place.map(|place| idle.remove(place))
        };
        match kept {
            Some(open) => Ok((open, false)),
            None => Ok((self.open(ttl).await?, true)),
        }
    }

    /// A new one.
    pub(super) async fn open(&self, ttl: Duration) -> Result<RowSession<D>> {
        self.context.closed.refuse()?;
        let (clock, dialect) = (&self.context.clock, &self.context.dialect);
        let opening = async {
            let (mut conn, number, server) = dialect.connect_row().await?;
            dialect.end_row_after(&mut conn, ttl).await?;
            let mark = dialect.mark(&mut conn).await.map_err(|error| dialect.fault(error))?;
            Ok((conn, number, mark, server))
        };
        let (conn, number, mark, server) = opened(clock, self.context.settings.connect_timeout, opening).await?;
        let now = clock.now();
        Ok(RowSession { conn, number, mark, server: server.into(), ttl, used: now, opened: now })
    }

    /// Keeps a session for the next hold. It must be in no transaction.
    pub(super) fn put(&self, mut open: RowSession<D>) {
        open.used = self.context.clock.now();
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE_SESSIONS && self.is_fresh(&open) && !self.context.closed.is_set() {
            idle.push(open);
        }
    }

    /// Rolls back, and keeps the session for the next hold. False if the server did not say that it is done.
    pub(super) async fn roll_back(self: &Arc<Self>, mut open: RowSession<D>, id: &RowId, is_used: bool) -> bool {
        let clock = &self.context.clock;
        let undoing = unless_misread(self.context.dialect.rollback(&mut open.conn, id));
        let undone = clock.timeout_at(clock.now().after(STATEMENT_TIMEOUT), undoing).await;
        let is_undone = matches!(undone, Some(Ok(())));
        if is_undone {
            self.give_back(open, is_used);
        }
        is_undone
    }

    /// Keeps a session for the next hold, or replaces one that a body has used.
    pub(super) fn give_back(self: &Arc<Self>, open: RowSession<D>, is_used: bool) {
        if is_used {
            self.replace(open);
        } else {
            self.put(open);
        }
    }

    /// Ends a session that a body has used, and opens another one in its place, so that nothing that the body has set there is the
    /// next body's: temporary tables, variables, modes.
    pub(super) fn replace(self: &Arc<Self>, used: RowSession<D>) {
        let Ok(background) = background() else { return };
        let sessions = self.clone();
        background.spawn(async move {
            let ttl = used.ttl;
            sessions.close(vec![used]).await;
            if let Ok(fresh) = sessions.open(ttl).await {
                sessions.put(fresh);
            }
        });
    }

    /// Ends sessions before the server ends them for their silence.
    pub(super) async fn tidy(&self) {
        let over: Vec<_> = {
            let mut idle = self.idle();
            idle.extract_if(.., |open| !self.is_fresh(open)).collect()
        };
        self.close(over).await;
    }

    /// Ends all of them, and opens none any more.
    pub(super) async fn end_all(&self) {
        self.context.closed.set();
        let all = std::mem::take(&mut *self.idle());
        self.close(all).await;
    }

    async fn close(&self, sessions: Vec<RowSession<D>>) {
        let clock = &self.context.clock;
        let end = clock.now().after(CLOSE_TIMEOUT);
        let closing = sessions.into_iter().map(|open| clock.timeout_at(end, self.context.dialect.close(open.conn)));
        join_all(closing).await;
    }

    fn is_fresh(&self, open: &RowSession<D>) -> bool {
        let (now, settings) = (self.context.clock.now(), &self.context.settings);
        now.since(open.used) < (open.ttl / 2).min(settings.idle_timeout)
            && now.since(open.opened) < settings.max_lifetime
    }

    fn idle(&self) -> MutexGuard<'_, Vec<RowSession<D>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
