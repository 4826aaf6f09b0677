//! How a lock is taken, confirmed and freed: the requests that callers and waiters share.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Hold, LockKey, Queue, Result, Signal, Validity, Wake};
use dlock_store::background;
use futures::future::BoxFuture;

use super::context::{Lock, NamedContext};
use super::dialect::NamedDialect;
use super::failure::{Answered, Failure};
use super::grant;
use super::held::{Held, NamedGrant};
use super::monitor::SessionMonitor;
use super::requests::run;
use super::shared_session::LockPlace;
use super::shared_sessions::SharedSessions;
use crate::connection::answer::answered;
use crate::connection::pending_attempts::PendingAttempts;
use crate::dialect::{Refusal, Value};
use crate::ways::{Ways, split_tokens, way_is_gone, way_name};

/// How long a renewal waits for the session of its hold before it asks the monitor.
const RENEWAL_PATIENCE: Duration = Duration::from_millis(250);

/// The parts of the store that waiters share. A waiter outlives its borrow of the store.
#[derive(Debug)]
pub(super) struct NamedShared<D: NamedDialect> {
    pub(super) context: Arc<NamedContext<D>>,
    pub(super) ways: Arc<Ways>,
    pub(super) pending_attempts: Arc<PendingAttempts>,
    pub(super) sessions: Arc<SharedSessions<D>>,
    /// Held while a namespace without a row here is looked for in other tables, by our thread.
    pub(super) looking: Arc<tokio::sync::Mutex<()>>,
    /// Knows the owner of each hold and its session: an owner that asks again gets its hold, and the hold of an owner
    /// that gives up is found.
    pub(super) monitor: Arc<SessionMonitor<D>>,
}

impl<D: NamedDialect> NamedShared<D> {
    pub(super) async fn bounded<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        answered(&self.context.clock, work).await
    }

    pub(super) async fn attempt(self: &Arc<Self>, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        if let Some(held) = self.monitor.holds.held_by(&claim.owner)
            && let Some(from) = self.confirm(&held).await?
        {
            let validity = Validity::new(from, claim.ttl);
            return Ok(Attempt::Acquired(Hold::new(claim.clone(), held.token, validity)?.with_session(held)));
        }
        if !self.ways.has(&claim.key) {
            self.agree(&claim.key).await?;
        }
        if let Some(held) = self.ask(claim).await? {
            return Ok(Attempt::Acquired(hold_of(held, claim)?));
        }
        let Queue::Join { until, .. } = queue else { return Ok(Attempt::Contended(Wake::poll())) };
        let lock = self.context.lock_of(&claim.key)?;
        let place = self.sessions.place_to_wait(claim.ttl, &lock.name).await?;
        let waiting = self.lock(place, lock, claim, until.since(self.context.clock.now()));
        let claim = claim.clone();
        Ok(Attempt::Contended(Wake::on(async move {
            let held = waiting.await.map_err(|failure| failure.error)?;
            held.map_or(Ok(Signal::Ask), |held| hold_of(held, &claim).map(Signal::Granted))
        })))
    }

    /// Asks whether a lock is still held. If so, it counts from before the request. Statements of other locks may run
    /// in its session for long, such as one that waits for a row. While one of them runs, the server does not count the
    /// session as silent, and says so to the monitor.
    pub(super) async fn confirm(&self, held: &Held<D>) -> Result<Option<BootInstant>> {
        let (clock, before) = (&self.context.clock, held.session().heard());
        let mut asking = pin!(held.confirm());
        let patience = RENEWAL_PATIENCE.min(held.session().ttl() / 6);
        if let Some(answer) = clock.timeout_at(clock.now().after(patience), asking.as_mut()).await {
            return answer;
        }
        let watching = async {
            loop {
                match self.monitor.hears(held).await {
                    Some(heard) if heard > before => return heard,
                    _ => clock.sleep_until(clock.now().after(patience)).await,
                }
            }
        };
        tokio::select! {
            answer = asking => answer,
            heard = watching => Ok(Some(heard).filter(|_| held.is_held())),
        }
    }

    /// Asks for the lock without waiting.
    async fn ask(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Option<Arc<Held<D>>>> {
        let lock = self.context.lock_of(&claim.key)?;
        loop {
            let (place, is_fresh) = self.sessions.place(claim.ttl, &lock.name, !claim.renewed).await?;
            match self.lock(place, lock.clone(), claim, Duration::ZERO).await {
                // The server has ended the session since its last answer. Nothing was taken that outlives it.
                Err(failure) if failure.is_over && !is_fresh => {
                    // The first request must not be done after the second one and its end.
                    self.monitor.end_left().await.map_err(|_| failure.error)?;
                }
                answer => return answer.map_err(|failure| failure.error),
            }
        }
    }

    /// Asks for the lock on a session at once, and makes a hold of it if it is granted.
    fn lock(
        self: &Arc<Self>,
        place: LockPlace<D>,
        lock: Lock,
        claim: &Arc<Claim>,
        wait: Duration,
    ) -> impl Future<Output = Answered<Option<Arc<Held<D>>>>> + Send + use<D> {
        let (session, shared, claim) = (place.session().clone(), self.clone(), claim.clone());
        let pending_attempt = self.pending_attempts.begin(claim.owner);
        let asked = session.lock(wait, pending_attempt, move |context, conn| {
            Box::pin(async move {
                let (answer, after) = grant::ask(context, conn, place.session().id(), &claim, &lock, wait).await;
                (answer.map(|granted| granted.map(|granted| shared.hold(place, lock, &claim, granted))), after)
            })
        });
        async { asked.await?.transpose().map_err(Failure::of) }
    }

    /// Makes a hold of a lock that the server has granted. If the token is out of range, the lock is freed.
    pub(super) fn hold(
        &self,
        place: LockPlace<D>,
        lock: Lock,
        claim: &Claim,
        (token, since): (Result<u64>, BootInstant),
    ) -> Result<Arc<Held<D>>> {
        if claim.renewed {
            place.share();
        }
        let Lock { name, row } = lock;
        let (owner, mode, row, number) = (claim.owner, claim.mode, row.name, token.as_ref().map_or(0, |token| *token));
        let held =
            Held::new(NamedGrant { owner, lock: name, mode, row, token: number, since }, place, &self.pending_attempts);
        token?;
        let held = Arc::new(held);
        self.monitor.holds.add(held.owner, &held, held.since);
        Ok(held)
    }

    /// Frees a hold. True if the hold existed at the first release; only the first answer shows that.
    pub(super) async fn free(&self, held: &Held<D>) -> Result<bool> {
        if let Some(freed) = held.free() {
            return Ok(self.ended_by(held, freed).await?.unwrap_or(true));
        }
        // The first release had no answer in time.
        let was_held = match self.bounded(async { Ok(held.freed().await) }).await? {
            Some(freed) => freed,
            // Our side has ended the session, but the server may not know it. If the session was not silent, the server
            // may have ended it first.
            None => {
                let session = held.session();
                self.monitor.end_session(held).await? || session.was_silent() || session.was_left()
            }
        };
        self.note_over(held);
        Ok(was_held)
    }

    fn note_over(&self, held: &Held<D>) {
        held.note_told();
        self.monitor.holds.remove(&held.owner, held);
    }

    /// Ends a hold by a request. `None`: it was not answered, but the hold was held when this was called.
    pub(super) async fn ended_by<T>(
        &self,
        held: &Held<D>,
        request: impl Future<Output = Answered<T>>,
    ) -> Result<Option<T>> {
        match self.bounded(async { Ok(request.await) }).await {
            Ok(Ok(answer)) => {
                self.note_over(held);
                Ok(Some(answer))
            }
            // It lists a session for a moment after that has given up its locks, so what it lists now says nothing.
            Ok(Err(failure)) if failure.by_server => Err(failure.error),
            // The connection is broken on our side, and the server knows the session still.
            Ok(Err(_)) | Err(_) if self.monitor.sees(held).await || held.session().was_left() => {
                if held.session().has_ended() {
                    // If this fails, the server ends the session later by itself.
                    let _ = self.monitor.end_session(held).await;
                }
                self.note_over(held);
                Ok(None)
            }
            Ok(Err(failure)) => Err(failure.error),
            Err(error) => Err(error),
        }
    }

    /// Notes the way of the key's namespace in the table. Fails if the table has another way.
    async fn agree(&self, key: &LockKey) -> Result<()> {
        if self.is_noted(key).await? {
            return Ok(());
        }
        let (name, word) = (way_name(key), self.ways.word().to_owned());
        let written = self.look(move |context, conn| {
            let (name, word) = (name.clone(), word.clone());
            Box::pin(async move {
                match run(context, conn, &context.common.write_meta, &[Value::Text(&name), Value::Text(&word)]).await {
                    Err(error) if context.dialect.refusal(&error) != Refusal::Duplicate => Err(error),
                    _ => Ok(()),
                }
            })
        });
        written.await?;
        match self.is_noted(key).await? {
            true => Ok(()),
            false => Err(way_is_gone()),
        }
    }

    /// Fails if the table has another way for the key's namespace, or if it has none, and other tables have it.
    pub(super) async fn admits(&self, key: &LockKey) -> Result<()> {
        self.is_noted(key).await.map(drop)
    }

    /// Whether the table has the way of the key's namespace. Fails if it has another way. If it has none, this fails if other tables
    /// have the same locks, so that a program that is refused has written nothing, and those of the other tables go on.
    async fn is_noted(&self, key: &LockKey) -> Result<bool> {
        let name = way_name(key);
        let found = self.look(move |context, conn| {
            let name = name.clone();
            Box::pin(
                async move { Ok(run(context, conn, &context.common.read_meta, &[Value::Text(&name)]).await?.rows) },
            )
        });
        if let Some(word) = found.await?.first().and_then(|row| row.first()) {
            return self.ways.compare(key, word.text()).map(|()| true);
        }
        match self.other_table(key).await? {
            Some(other) => Err(split_tokens(key, &other)),
            None => Ok(false),
        }
    }

    /// Another table in which the namespace has the same locks. Over a connection of its own, since a session that waits for a table
    /// may have locks.
    async fn other_table(&self, key: &LockKey) -> Result<Option<String>> {
        let (context, name, word) = (self.context.clone(), way_name(key), self.ways.word().to_owned());
        let (looking, ways, key) = (self.looking.clone(), self.ways.clone(), key.clone());
        let asking = background()?.run(async move {
            // The first callers of a program may be many. They look one after another, and no more once the row is known.
            let _one = looking.lock().await;
            if ways.has(&key) {
                return Ok(None);
            }
            context.closed.refuse()?;
            let (mut conn, _) = context.dialect.connect_named().await?;
            let other = context.dialect.other_named_table(&mut conn, (&name, &word)).await;
            context.dialect.close(conn).await;
            other
        });
        asking.await?
    }

    /// Asks the server for something that is no lock's, on any session. Again on a new one if the server has ended it.
    pub(super) async fn look<T, R>(&self, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> Fn(&'a NamedContext<D>, &'a mut D::Conn) -> BoxFuture<'a, sqlx::Result<T>> + Clone + Send + 'static,
    {
        match self.sessions.any().await?.ask(request.clone()).await {
            Err(failure) if failure.is_over => {
                self.sessions.looking().await?.ask(request).await.map_err(|failure| failure.error)
            }
            answer => answer.map_err(|failure| failure.error),
        }
    }
}

pub(super) fn hold_of<D: NamedDialect>(held: Arc<Held<D>>, claim: &Arc<Claim>) -> Result<Hold> {
    Ok(Hold::new(claim.clone(), held.token, Validity::new(held.since, claim.ttl))?.with_session(held))
}
