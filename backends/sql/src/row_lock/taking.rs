//! Takes a row: locks it in a transaction, and writes the record of the hold over another connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Claim, Error, ErrorKind, HoldId, Mode, Result};
use dlock_store::background;

use tokio::sync::oneshot;

use super::aside::failed;
use super::circle::Circle;
use super::dialect::{RowAsk, RowDialect, RowId, Taken};
use super::held::{HeldRow, RowGrant};
use super::record::{self, Record};
use super::sessions::RowSession;
use super::shared::RowShared;
use crate::connection::misread::unless_misread;
use crate::connection::session::refused;
use crate::dialect::{Refusal, SessionMark, Value};
use crate::tables::row_table::RowKey;

/// How often a row that is missing is made, and asked for again: another process may sweep it in between.
const INSERT_LIMIT: u32 = 3;

/// How long a waiter that was granted the row may take to say that it is there.
const SILENCE_AFTER_WAIT: Duration = Duration::from_secs(2);

/// The answer to a request for a row.
pub(super) enum Found<D: RowDialect> {
    Held(Arc<HeldRow<D>>),
    Busy,
}

/// The session that is asked for a row now, and its server. None once the row is a hold's, or is known not to be locked.
#[derive(Default)]
pub(super) struct AskedSession(Mutex<Option<(SessionMark, Arc<str>)>>);

impl AskedSession {
    fn set(&self, session: Option<&SessionMark>, server: &Arc<str>) {
        *self.place() = session.map(|session| (session.clone(), server.clone()));
    }

    fn take(&self) -> Option<(SessionMark, Arc<str>)> {
        self.place().take()
    }

    fn place(&self) -> std::sync::MutexGuard<'_, Option<(SessionMark, Arc<str>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: RowDialect> RowShared<D> {
    /// Waits for a row until then. Dropping this ends the wait, in the server too.
    pub(super) async fn wait(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        until: BootInstant,
    ) -> Result<Option<Arc<HeldRow<D>>>> {
        let (mut tell, told) = oneshot::channel();
        let (shared, claim) = (self.clone(), claim.clone());
        let mut circle = Circle::of(self, &claim)?;
        let pending_attempt = self.pending_attempts.begin(claim.owner);
        background()?.spawn(async move {
            let session = AskedSession::default();
            let found = tokio::select! {
                found = unless_misread(shared.take(&claim, Some(until), &session)) => Some(found),
                error = circle.closes() => Some(Err(error)),
                () = tell.closed() => None,
            };
            shared.end_asked(&session, &claim);
            circle.end().await;
            if let Some(found) = found {
                let _ = tell.send((found, pending_attempt));
            }
        });
        let (found, _pending_attempt) = told.await.map_err(|_| failed())?;
        Ok(match found? {
            Found::Held(held) => Some(held),
            Found::Busy => None,
        })
    }

    /// Locks the row, and waits for it until then, if at all. It runs on our thread. `session` has the session that is asked.
    pub(super) async fn take(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        until: Option<BootInstant>,
        session: &AskedSession,
    ) -> Result<Found<D>> {
        let row = self.table.key_of(self.kind, &claim.key)?;
        let record = Record { name: self.table.record_of(&claim.key, &row), is_reader: claim.mode == Mode::Read };
        let hold = HoldId::of(&claim.owner).to_string();
        let mut made = 0;
        loop {
            let wait = until.map(|until| until.since(self.context.clock.now()));
            let (open, since, taken) = self.lock((&row, &hold), claim, wait, session).await?;
            let id = |transaction| RowId { session: open.number, transaction, hold: hold.clone() };
            match taken {
                Taken::Row(transaction) => {
                    let id = id(transaction);
                    return self.granted(claim, (open, since, session), record, row, id).await.map(Found::Held);
                }
                Taken::Busy => {
                    let id = id(0);
                    self.give_up(open, &id, session).await;
                    return Ok(Found::Busy);
                }
                Taken::Missing => {
                    let id = id(0);
                    self.give_up(open, &id, session).await;
                    if self.table.is_own || made >= INSERT_LIMIT {
                        return Err(self.missing(&row, claim));
                    }
                    made += 1;
                    self.create(&row).await?;
                }
            }
        }
    }

    /// One request, on a session that was used before or on a new one. The server may have ended the former, and nothing was
    /// taken then.
    async fn lock(
        &self,
        (row, hold): (&RowKey, &str),
        claim: &Claim,
        wait: Option<Duration>,
        session: &AskedSession,
    ) -> Result<(RowSession<D>, BootInstant, Taken)> {
        let (clock, dialect) = (&self.context.clock, &self.context.dialect);
        let (mut open, mut is_new) = self.sessions.get(claim.ttl).await?;
        loop {
            let ask = RowAsk {
                table: &self.table,
                key: row,
                hold,
                is_shared: claim.mode == Mode::Read,
                wait,
                silence: SILENCE_AFTER_WAIT.min(claim.ttl),
            };
            let asked = clock.now();
            session.set(open.mark.as_ref(), &open.server);
            let taking = async {
                let taken = dialect.take_row(&mut open.conn, ask).await?;
                if wait.is_none() {
                    return Ok((taken, asked));
                }
                // After a wait the server counts the silence anew. The answer to the wait may come late, so its time
                // does not show since when. Only this request, once it is answered, shows that the session lived when
                // it was sent.
                let since = clock.now();
                dialect.end_wait(&mut open.conn, taken, claim.ttl).await?;
                Ok((taken, since))
            };
            match taking.await {
                Ok((taken, since)) => return Ok((open, since, taken)),
                Err(error) if dialect.refusal(&error) == Refusal::SessionEnded && !is_new => {
                    (open, is_new) = (self.sessions.open(claim.ttl).await?, true);
                }
                // The connection is dropped, and the transaction with it.
                Err(error) => {
                    self.context.collisions.note(dialect.refusal(&error));
                    return Err(refused(dialect, error));
                }
            }
        }
    }

    async fn granted(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        (open, since, session): (RowSession<D>, BootInstant, &AskedSession),
        record: Record,
        row: RowKey,
        id: RowId,
    ) -> Result<Arc<HeldRow<D>>> {
        let (statements, written) = (self.statements.clone(), (record.clone(), claim.clone(), id.clone()));
        let writing = self.pool.run(move |session| {
            Box::pin(async move {
                let (record, claim, id) = written;
                record::write(&statements, session, &record, &claim, &id).await
            })
        });
        let token = match writing.await {
            Ok(token) => token,
            Err(error) => {
                self.give_up(open, &id, session).await;
                return Err(error);
            }
        };
        session.take();
        let held = Arc::new(HeldRow::new(
            RowGrant { owner: claim.owner, id, record, row, token, since, open },
            &self.sessions,
            &self.monitor.connection,
            &self.pending_attempts,
        ));
        self.monitor.holds.add(held.owner, &held, held.since);
        Ok(held)
    }

    /// Rolls back a transaction that is no hold.
    async fn give_up(&self, open: RowSession<D>, id: &RowId, session: &AskedSession) {
        if self.sessions.roll_back(open, id, false).await {
            session.take();
        }
    }

    /// Ends the session of a request that has ended without an answer. Its connection is closed, but a server that waits for a
    /// row does not see that. The caller does not wait for it, because the server may be down.
    pub(super) fn end_asked(&self, session: &AskedSession, claim: &Claim) {
        let (Some((session, server)), Ok(background)) = (session.take(), background()) else { return };
        // An abandon waits for it.
        let pending_attempt = self.pending_attempts.begin(claim.owner);
        let (connection, ttl) = (self.monitor.connection.clone(), claim.ttl);
        background.spawn(async move {
            connection.end_left(&session, &server, ttl).await;
            drop(pending_attempt);
        });
    }

    /// Makes a row that is missing in dlock's table, in a transaction of its own: a request for a missing row keeps nobody out.
    async fn create(&self, row: &RowKey) -> Result<()> {
        let (statements, name) = (self.statements.clone(), row.text());
        let creating = self.pool.run(move |session| {
            Box::pin(async move { session.insert_if_missing(&statements.create, &[Value::Text(&name)]).await })
        });
        creating.await
    }

    fn missing(&self, row: &RowKey, claim: &Claim) -> Error {
        let table = &self.table;
        let text = format!(
            "the table `{}` has no row whose `{}` is `{}`, so there is nothing to lock: insert it before, or look whether the key \
             is written as in the table",
            table.name,
            table.column,
            row.text().escape_default()
        );
        Error::new(ErrorKind::NoSuchRow, text).with_key(claim.key.as_str())
    }
}
