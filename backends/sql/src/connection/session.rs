//! A session of the server for statements, and how it asks the server.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BootInstant, Error, ErrorKind, Health, LockKey, Result};
use dlock_store::Clock;
use futures::future::BoxFuture;

use crate::connection::answer::Retries;
use crate::connection::closed::Closed;
use crate::connection::collisions::Collisions;
use crate::connection::hosts::not_ready;
use crate::connection::left_sessions::LeftSessions;
use crate::connection::misread::unless_misread;
use crate::dialect::{Answer, Dialect, MarkedSession, Refusal, SessionMark, Value};
use crate::settings::Settings;
use crate::tables::row::{RowName, row_name};
use crate::tables::shedlock;
use crate::tables::statements::LeaseStatements;
use crate::tables::words::Statement;

/// The parts that all connections of a store share.
#[derive(Debug)]
pub(crate) struct StoreContext<D> {
    pub(crate) dialect: D,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
    pub(crate) statements: LeaseStatements,
    pub(crate) collisions: Collisions,
    pub(crate) left_sessions: LeftSessions,
    pub(crate) closed: Closed,
}

impl<D: Dialect> StoreContext<D> {
    pub(crate) fn new(dialect: D, statements: LeaseStatements, settings: Settings, clock: &Clock) -> Arc<Self> {
        Arc::new(Self {
            dialect,
            clock: clock.clone(),
            settings,
            statements,
            collisions: Collisions::default(),
            left_sessions: LeftSessions::default(),
            closed: Closed::default(),
        })
    }

    /// The row of a lock.
    pub(crate) fn row_name(&self, key: &LockKey) -> Result<RowName> {
        match self.dialect.shedlock() {
            Some(_) => shedlock::row_name(key),
            None => Ok(row_name(key)),
        }
    }
}

/// The server that granted a hold. After a failover another server answers. It may have the row although the first
/// server still renews it, or it may lack the last commits. Its answers about an older hold prove nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GrantingServer {
    server: String,
}

impl dlock_contract::Session for GrantingServer {}

/// One connection. Each of its statements is a transaction of its own.
pub(crate) struct StatementSession<D: Dialect> {
    pub(crate) context: Arc<StoreContext<D>>,
    /// The server at the other end, which the holds that it grants live in.
    pub(crate) granting_server: Arc<GrantingServer>,
    conn: D::Conn,
    mark: Option<SessionMark>,
    opened: BootInstant,
    /// When it last had an answer.
    used: BootInstant,
    /// Nothing more may be asked on it.
    pub(crate) broken: bool,
    /// A turn in a wait queue is bound to this session, and ends with it. So no statement is sent again over a new
    /// session.
    pub(crate) is_bound: bool,
}

/// The answer to a statement.
pub(crate) struct RetriedAnswer {
    pub(crate) answer: Answer,
    /// The statement was sent twice, and this is why: the first one may have been done.
    pub(crate) again: Option<sqlx::Error>,
}

/// After this much silence a job begins with a ping. The server may have been restarted meanwhile, and a request over
/// the dead connection would have an unknown outcome.
const PING_AFTER_SILENCE: Duration = Duration::from_secs(1);

/// How long a ping, the end of a session, or a goodbye may take.
const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// How often the server is asked whether a session that it should end has ended.
const END_POLL_PAUSE: Duration = Duration::from_millis(5);

impl<D: Dialect> StatementSession<D> {
    pub(crate) async fn open(context: &Arc<StoreContext<D>>) -> Result<Self> {
        context.closed.refuse()?;
        let timeout = context.settings.connect_timeout;
        let late = || Error::outage(not_ready(timeout));
        let opening = unless_misread(async {
            let (mut conn, server) = context.dialect.connect().await?;
            let mark = context.dialect.mark(&mut conn).await.map_err(|error| context.dialect.fault(error))?;
            Ok((conn, server, mark))
        });
        let (conn, server, mark) =
            context.clock.timeout_at(context.clock.now().after(timeout), opening).await.ok_or_else(late)??;
        let now = context.clock.now();
        let granting_server = Arc::new(GrantingServer { server });
        Ok(Self {
            context: context.clone(),
            granting_server,
            conn,
            mark,
            opened: now,
            used: now,
            broken: false,
            is_bound: false,
        })
    }

    /// Whether the server has no session for this connection alone, as behind a pooler of transactions. Then no other connection
    /// can end what was sent here: an insert whose commit arrives late would be a held lock, and no abandon would see its row
    /// before. A change of a row that is there keeps it locked until then, so an abandon waits for it.
    pub(crate) fn is_shared(&self) -> bool {
        self.mark.is_none()
    }

    /// Whether the next job may run on it.
    pub(crate) async fn check_usable(&mut self) -> bool {
        let now = self.context.clock.now();
        if self.broken || now.since(self.opened) >= self.context.settings.max_lifetime {
            return false;
        }
        if now.since(self.used) < PING_AFTER_SILENCE {
            return true;
        }
        // As in `run`.
        self.broken = true;
        let ping = unless_misread(self.context.dialect.ping(&mut self.conn));
        self.broken = !matches!(self.context.clock.timeout_at(now.after(PING_TIMEOUT), ping).await, Some(Ok(())));
        !self.broken
    }

    /// Runs one statement. It is a transaction of its own, and may be run twice: see [`RetriedAnswer::again`].
    pub(crate) async fn ask(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<Answer> {
        Ok(self.ask_for_change(statement, values).await?.answer)
    }

    /// Like [`ask`](Self::ask), for a statement whose second run finds nothing to change.
    pub(crate) async fn ask_for_change(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<RetriedAnswer> {
        let context = self.context.clone();
        self.send(statement, values).await.map_err(|error| refused(&context.dialect, error))
    }

    /// Like [`ask`](Self::ask); `None` if it has changed nothing, as an insert of a row that is there already.
    pub(crate) async fn insert(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<Option<Answer>> {
        let context = self.context.clone();
        match self.send(statement, values).await {
            Ok(asked) => Ok(Some(asked.answer).filter(|answer| answer.changed > 0)),
            Err(error) if context.dialect.refusal(&error) == Refusal::Duplicate => Ok(None),
            Err(error) => Err(refused(&context.dialect, error)),
        }
    }

    /// Like [`ask`](Self::ask); `None` if another session keeps the row locked.
    pub(crate) async fn ask_unless_locked(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Option<Answer>> {
        let context = self.context.clone();
        match self.send(statement, values).await {
            Err(error) if context.dialect.refusal(&error) == Refusal::RowLocked => Ok(None),
            asked => asked.map(|asked| Some(asked.answer)).map_err(|error| refused(&context.dialect, error)),
        }
    }

    /// Inserts the row unless another session is inserting it. The server lets the insert wait while another session
    /// keeps the row locked, and refuses it after a time limit.
    pub(crate) async fn insert_if_missing(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<()> {
        let context = self.context.clone();
        match self.send(statement, values).await {
            Ok(_) => Ok(()),
            Err(error) => match context.dialect.refusal(&error) {
                Refusal::Duplicate | Refusal::RowLocked => Ok(()),
                _ => Err(refused(&context.dialect, error)),
            },
        }
    }

    /// Sends it, and once more over a new connection if the server has ended this one since its last answer, as a restart
    /// does.
    async fn send(&mut self, statement: &Statement, values: &[Value<'_>]) -> sqlx::Result<RetriedAnswer> {
        match self.run(statement, values).await {
            Err(error) if self.broken && !self.is_bound => {
                // If that fails too, the first request may have left all the same, and its error says so.
                let Ok(mut fresh) = Self::open(&self.context).await else { return Err(error) };
                // It must not be done after the second one and its end.
                if fresh.end_left().await.is_err() {
                    return Err(error);
                }
                *self = fresh;
                Ok(RetriedAnswer { answer: self.run(statement, values).await?, again: Some(error) })
            }
            answer => Ok(RetriedAnswer { answer: answer?, again: None }),
        }
    }

    /// Ends the sessions in the server that were left in the middle of a statement, so that nothing of them comes later. If the
    /// server has ended this session since its last answer, a new one takes its place.
    pub(crate) async fn end_left(&mut self) -> Result<()> {
        let context = self.context.clone();
        let until = context.clock.now().after(PING_TIMEOUT);
        let mut is_new = self.is_bound;
        while let Some(left) = context.left_sessions.first() {
            let asked = left.clone();
            let ending = self
                .request(move |dialect, conn| Box::pin(async move { dialect.end_marked(conn, &asked).await }))
                .await;
            if ending.is_err() && self.broken && !std::mem::replace(&mut is_new, true) {
                *self = Self::open(&context).await?;
                continue;
            }
            match ending? {
                MarkedSession::Gone => context.left_sessions.remove(&left),
                // The server ends it some day, and no request may wait for that.
                MarkedSession::OfAnotherAccount => {
                    context.collisions.note_of_another_account();
                    context.left_sessions.remove(&left);
                }
                MarkedSession::Ends if context.clock.now() >= until => {
                    let text = "the server has not ended a session yet whose last statement had no answer";
                    return Err(Error::outage(text));
                }
                MarkedSession::Ends => context.clock.sleep_until(context.clock.now().after(END_POLL_PAUSE)).await,
            }
        }
        Ok(())
    }

    async fn run(&mut self, statement: &Statement, values: &[Value<'_>]) -> sqlx::Result<Answer> {
        let context = self.context.clone();
        let mut retries = Retries::new();
        loop {
            // If this future is dropped in the middle of the statement, nothing is known of the connection.
            self.broken = true;
            let under_way = context.left_sessions.begin(self.mark.as_ref());
            let answer = context.dialect.run(&mut self.conn, statement, values).await;
            let refusal = answer.as_ref().err().map(|error| context.dialect.refusal(error));
            self.broken = refusal == Some(Refusal::SessionEnded);
            if !self.broken {
                under_way.answered();
            }
            self.used = context.clock.now();
            if !retries.again(&context.clock, &context.collisions, refusal).await {
                return answer;
            }
        }
    }

    /// Runs a request of the dialect that is no statement of the lease row.
    pub(crate) async fn request<T>(
        &mut self,
        request: impl for<'a> FnOnce(&'a D, &'a mut D::Conn) -> BoxFuture<'a, sqlx::Result<T>>,
    ) -> Result<T> {
        let context = self.context.clone();
        // As in `run`.
        self.broken = true;
        let answer = request(&context.dialect, &mut self.conn).await;
        let refusal = answer.as_ref().err().map(|error| context.dialect.refusal(error));
        (self.broken, self.used) = (refusal == Some(Refusal::SessionEnded), context.clock.now());
        answer.map_err(|error| context.dialect.fault(error))
    }

    /// Makes the tables that are missing, and says in which table of somebody else's locks are taken.
    pub(crate) async fn prepare(&mut self) -> Result<String> {
        let context = self.context.clone();
        let mut retries = Retries::new();
        loop {
            self.broken = true;
            let place = context.dialect.prepare(&mut self.conn).await;
            if !retries.open_again(&context.clock, &context.collisions, &context.dialect, &place).await {
                if place.is_ok() {
                    self.note_answer();
                }
                return place;
            }
        }
    }

    /// Asks for the server's version, role and settings.
    pub(crate) async fn health(&mut self) -> Result<Health> {
        match self.ask_for_health().await {
            // As in `send`: the server may have ended the session since its last answer.
            Err(error) if *error.kind() == ErrorKind::Outage => {
                *self = Self::open(&self.context).await?;
                self.ask_for_health().await
            }
            answer => answer,
        }
    }

    async fn ask_for_health(&mut self) -> Result<Health> {
        let context = self.context.clone();
        self.broken = true;
        let health = context.dialect.health(&mut self.conn).await?;
        self.note_answer();
        Ok(context.collisions.told_in(health))
    }

    fn note_answer(&mut self) {
        (self.broken, self.used) = (false, self.context.clock.now());
    }

    pub(crate) async fn close(self) {
        let Self { context, conn, broken, .. } = self;
        if !broken {
            let _ =
                context.clock.timeout_at(context.clock.now().after(PING_TIMEOUT), context.dialect.close(conn)).await;
        }
    }
}

pub(crate) fn refused<D: Dialect>(dialect: &D, error: sqlx::Error) -> Error {
    match dialect.refusal(&error) {
        Refusal::RowLocked => Error::outage(
            "another session keeps the lock's row locked, such as an open transaction of a person: end that session",
        )
        .because(dialect.fault(error)),
        _ => dialect.fault(error),
    }
}
