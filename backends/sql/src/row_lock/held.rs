//! One hold: a transaction that keeps a row locked.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dlock_contract::engine::background;
use dlock_contract::{BootInstant, Error, Owner, Released, Result};
use futures::future::BoxFuture;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use super::dialect::{RowDialect, RowId};
use super::monitor::Seen;
use super::record::Record;
use super::sessions::Open;
use super::store::Shared;
use super::table::RowKey;
use crate::dialect::Refusal;
use crate::flights::Flight;
use crate::session::refused;

/// How long an end of a hold waits for a statement of the body that is still under way. After that the session is ended, and the
/// statement with it.
const STATEMENT: Duration = Duration::from_millis(250);
/// How long the server may take to end a session.
const KILLED: Duration = Duration::from_secs(1);
/// How long a renewal waits for the hold's own session before it asks the monitor.
const PING: Duration = Duration::from_secs(1);

/// The session of a hold. `None` once the transaction has ended.
pub(super) type Slot<D> = Arc<Mutex<Option<Open<D>>>>;

/// One hold. Dropping it rolls back.
pub struct HeldRow<D: RowDialect> {
    pub(super) owner: Owner,
    pub(super) id: RowId,
    pub(super) server: Arc<str>,
    pub(super) record: Record,
    pub(super) row: RowKey,
    pub(super) token: u64,
    pub(super) since: BootInstant,
    ttl: Duration,
    pub(super) slot: Slot<D>,
    ended: watch::Sender<bool>,
    /// Its end has begun, by us.
    is_ending: AtomicBool,
    is_committed: AtomicBool,
    /// The body has the transaction.
    pub(super) is_lent: AtomicBool,
    /// The body has had a connection.
    pub(super) has_work: AtomicBool,
    looked: AtomicU64,
    store: Weak<Shared<D>>,
}

/// A hold as it was granted.
pub(super) struct Granted<D: RowDialect> {
    pub(super) owner: Owner,
    pub(super) id: RowId,
    pub(super) record: Record,
    pub(super) row: RowKey,
    pub(super) token: u64,
    /// Since before the server was asked for something that it has answered with the row locked.
    pub(super) since: BootInstant,
    pub(super) open: Open<D>,
}

impl<D: RowDialect> dlock_contract::Session for HeldRow<D> {
    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        let mut ended = self.ended.subscribe();
        // An error: the hold has gone.
        Some(Box::pin(async move { drop(ended.wait_for(|ended| *ended).await) }))
    }
}

impl<D: RowDialect> HeldRow<D> {
    pub(super) fn new(granted: Granted<D>, store: &Arc<Shared<D>>) -> Self {
        let Granted { owner, id, record, row, token, since, open } = granted;
        Self {
            owner,
            id,
            server: open.server.clone(),
            record,
            row,
            token,
            since,
            ttl: open.ttl,
            slot: Arc::new(Mutex::new(Some(open))),
            ended: watch::Sender::new(false),
            is_ending: AtomicBool::new(false),
            is_committed: AtomicBool::new(false),
            is_lent: AtomicBool::new(false),
            has_work: AtomicBool::new(false),
            looked: AtomicU64::new(since.as_nanos()),
            store: Arc::downgrade(store),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// It is surely not held any more.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Whether the monitor is to look at it.
    pub(super) fn is_watched(&self) -> bool {
        !self.has_ended() && !self.is_ending.load(Ordering::Acquire)
    }

    pub(super) fn is_committed(&self) -> bool {
        self.is_committed.load(Ordering::Acquire)
    }

    pub(super) fn looked(&self) -> BootInstant {
        BootInstant::from_nanos(self.looked.load(Ordering::Acquire))
    }

    pub(super) fn set_looked(&self, now: BootInstant) {
        self.looked.store(now.as_nanos(), Ordering::Release);
    }

    /// Takes its session, to end the transaction. Nobody gets it after that.
    pub(super) async fn begin_end(&self, store: &Shared<D>) -> Option<OwnedMutexGuard<Option<Open<D>>>> {
        self.is_ending.store(true, Ordering::Release);
        let clock = &store.site.clock;
        clock.timeout_at(clock.now().after(STATEMENT), self.slot.clone().lock_owned()).await
    }

    pub(super) fn note_committed(&self) {
        self.is_committed.store(true, Ordering::Release);
        self.end();
    }

    /// Asks whether the row is still locked by this hold: from before the request on, or not any more.
    pub(super) async fn confirm(self: &Arc<Self>, store: &Arc<Shared<D>>) -> Result<Option<BootInstant>> {
        if self.has_ended() {
            return Ok(None);
        }
        let clock = store.site.clock.clone();
        let from = clock.now();
        // No statement of the body is under way, so its own session is asked. That also keeps the server from ending it for
        // its silence.
        if let Ok(slot) = self.slot.clone().try_lock_owned() {
            let (held, shared) = (self.clone(), store.clone());
            let asked = ask_aside(async move { held.ping(&shared, slot).await })?;
            match clock.timeout_at(from.after(PING.min(self.ttl / 6)), asked).await {
                Some(Ok(Some(answer))) => return answer.map(|is_held| is_held.then_some(from)),
                // The session's end was found out, but not by an answer of the server.
                Some(_) => {}
                // What a dropped statement has left is still on its way.
                None => {}
            }
        }
        match store.monitor.sees(self).await {
            Seen::Held => Ok(Some(from)),
            Seen::Ended => {
                self.end();
                Ok(None)
            }
            Seen::Unknown => Err(Error::outage("the server did not say whether the session of the lock lives")),
        }
    }

    /// `None` if its session cannot say.
    async fn ping(&self, store: &Shared<D>, mut slot: OwnedMutexGuard<Option<Open<D>>>) -> Option<Result<bool>> {
        let dialect = &store.site.dialect;
        let open = slot.as_mut()?;
        match dialect.is_in(&mut open.conn, &self.id).await {
            Ok(true) => Some(Ok(true)),
            Ok(false) => {
                self.end();
                Some(Ok(false))
            }
            Err(error) if dialect.refusal(&error) == Refusal::SessionEnded => None,
            Err(error) => Some(Err(refused(dialect, error))),
        }
    }

    /// Rolls back. `Released` if the row was locked until then.
    pub(super) async fn undo(&self, store: &Shared<D>) -> Result<Released> {
        if self.is_committed() {
            return Ok(Released::Released);
        }
        let ended = self.has_ended();
        let clock = &store.site.clock;
        let open = match self.begin_end(store).await {
            Some(mut slot) => match slot.take() {
                Some(open) => Some(open),
                None => return Ok(Released::NotOwner),
            },
            // A statement of the body is under way.
            None => None,
        };
        if let Some(mut open) = open {
            let dialect = &store.site.dialect;
            let undoing = async {
                let is_held = dialect.is_in(&mut open.conn, &self.id).await?;
                dialect.rollback(&mut open.conn, &self.id).await?;
                Ok::<_, sqlx::Error>(is_held)
            };
            if let Some(Ok(is_held)) = clock.timeout_at(clock.now().after(STATEMENT), undoing).await {
                store.sessions.put(open);
                self.end();
                return Ok(if is_held && !ended { Released::Released } else { Released::NotOwner });
            }
            // The connection is dropped: it is broken, or a statement that the body gave up is still under way.
        }
        self.kill(store, ended).await
    }

    /// Ends the session, and the transaction with it.
    async fn kill(&self, store: &Shared<D>, ended: bool) -> Result<Released> {
        let seen = store.monitor.sees_session(self).await;
        self.end();
        if seen == Seen::Ended {
            return Ok(Released::NotOwner);
        }
        let clock = &store.site.clock;
        let until = clock.now().after(KILLED);
        store.monitor.kill(self.id.session).await?;
        while clock.now() < until && store.monitor.sees_session(self).await != Seen::Ended {
            clock.sleep_until(clock.now().after(Duration::from_millis(5))).await;
        }
        match seen {
            Seen::Held if !ended => Ok(Released::Released),
            _ => Err(Error::outage("nobody knows whether the row was locked to the end: its session did not answer")),
        }
    }
}

impl<D: RowDialect> Drop for HeldRow<D> {
    /// Rolls back in the background, so that the connection can be used again.
    fn drop(&mut self) {
        let (Some(store), Ok(background)) = (self.store.upgrade(), background()) else { return };
        let Some(mut open) = self.slot.clone().try_lock_owned().ok().and_then(|mut slot| slot.take()) else { return };
        // An abandon that follows waits for it.
        let (flight, id) = (store.flights.begin(self.owner), self.id.clone());
        background.spawn(async move {
            let _flight: Flight = flight;
            let clock = &store.site.clock;
            let undoing = store.site.dialect.rollback(&mut open.conn, &id);
            if let Some(Ok(())) = clock.timeout_at(clock.now().after(STATEMENT), undoing).await {
                store.sessions.put(open);
            }
        });
    }
}

/// Runs work on our thread to its end, whether anybody waits for it or not.
pub(super) fn ask_aside<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<tokio::sync::oneshot::Receiver<T>> {
    let (tell, told) = tokio::sync::oneshot::channel();
    background()?.spawn(async move {
        // The caller may be gone.
        let _ = tell.send(work.await);
    });
    Ok(told)
}

impl<D: RowDialect> fmt::Debug for HeldRow<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldRow").field("record", &self.record.name).field("id", &self.id).finish_non_exhaustive()
    }
}
