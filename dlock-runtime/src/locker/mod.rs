//! One acquisition, from the call to the guard.

mod contend;
mod together;

use std::borrow::Cow;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::ask::Ask;
use crate::backend::{Attempt, Claim, Hold};
use crate::background::{Home, background_of, here, home};
use crate::baton::What;
use crate::clock::BootInstant;
use crate::cohort::Tenancy;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::key::{KeyBuf, LockKey};
use crate::local_queue::{Joined, Turn, Waiting, Wish};
use crate::note::Note;
use crate::observe::Event;
use crate::options::{Kind, Resolved, Wait};
use crate::owner::Owner;
use crate::registry::Shared;
use crate::release;
use crate::scope;
use crate::sites::Label;
use crate::store::{Store, request_bound};
use crate::tenure::{Beginning, Tenure};
pub(crate) use together::{Tried, acquire_together};

/// An attempt is given this long even if the wait is shorter: opening a connection takes its time.
const LEAST_PATIENCE: Duration = Duration::from_millis(250);

/// Acquires. Dropping the returned future leaves nothing behind in the store.
///
/// What can be refused without asking the store is refused here and now, so that the future need not keep the question.
pub(crate) fn acquire(ask: Ask, key: &KeyBuf) -> BoxFuture<'static, Result<Guard>> {
    acquire_until(ask, key, None, 0)
}

/// The same by a deadline, after so many attempts.
pub(crate) fn acquire_until(
    ask: Ask,
    key: &KeyBuf,
    deadline: Option<BootInstant>,
    attempts: u32,
) -> BoxFuture<'static, Result<Guard>> {
    match prepare(ask, key, deadline) {
        Ok(Prepared::Asks(mut acquisition)) => {
            acquisition.attempts = attempts;
            Box::pin(acquisition.run())
        }
        Ok(Prepared::Joins(guard)) => Box::pin(ready(Ok(guard))),
        Err(error) => Box::pin(ready(Err(error))),
    }
}

/// What a call comes to before anything is asked of the store.
#[expect(
    clippy::large_enum_variant,
    reason = "moved once, into the future of the call; a box would be one more for each"
)]
pub(crate) enum Prepared {
    Asks(Acquisition),
    /// The enclosing call's hold is used.
    Joins(Guard),
}

pub(crate) fn deadline(since: BootInstant, wait: Wait) -> BootInstant {
    match wait {
        Wait::None => since,
        Wait::UpTo(wait) => since.after(wait),
        Wait::Forever => BootInstant::NEVER,
    }
}

pub(crate) fn prepare(ask: Ask, key: &KeyBuf, until: Option<BootInstant>) -> Result<Prepared> {
    let registry = &ask.registry;
    let shared = registry.shared().clone();
    let since = shared.clock.now();
    let store = registry.store(ask.backend.as_deref())?;
    let defaults = registry.defaults();
    let named = |error: Error| error.with_backend(&store.name);
    registry.check_open().map_err(named)?;
    let options = ask.options.resolve(&defaults).map_err(named)?;
    let key = LockKey::within(&defaults.namespace, key).map_err(named)?;
    let named = |error: Error| error.with_key(key.as_str()).with_backend(&store.name);
    // One system call for all three that a fork would confuse: our thread, the random bytes, the note.
    let pid = std::process::id();
    background_of(pid).map_err(named)?;
    if let Some(outer) = scope::holding(&store, &key) {
        if ask.options.reentrant && outer.hold.claim.kind.covers(ask.options.kind) {
            return Ok(Prepared::Joins(Guard::joined(outer)));
        }
        return Err(named(Error::new(
            ErrorKind::WouldDeadlock,
            "the enclosing call holds this lock already, and would wait for itself",
        )));
    }
    let label = Label::new(ask.place, store.name.clone());
    #[cfg(debug_assertions)]
    shared.order.note(&shared.events, &label);
    let capabilities = store.backend.capabilities();
    let claim = Claim {
        owner: Owner::fresh_in(pid)?,
        ttl: options.ttl,
        renewed: options.cadence.is_some(),
        kind: ask.options.kind,
        fair: ask.options.fair,
        once_per: ask.options.once_per,
        backoff: options.backoff,
        note: Note::new(pid, label.name(), shared.clock.wall_ms(), registry.trace().as_deref()),
        origin: if capabilities.connection_per_hold || ask.parks { None } else { here() },
        key: key.clone(),
    };
    capabilities.check(&claim, &ask.options).map_err(named)?;
    // The store keeps a record of what was asked of it: a run that is passed on would go under another one's name.
    let passes = ask.options.cohort.filter(|_| !options.record);
    Ok(Prepared::Asks(Acquisition {
        deadline: until.unwrap_or_else(|| deadline(since, options.wait)),
        label: Some(label),
        home: if ask.parks { None } else { home() },
        parked: if ask.parks { home() } else { None },
        #[cfg(debug_assertions)]
        sorted: ask.sorted,
        shared,
        store,
        claim: Arc::new(claim),
        tenancy: passes.map(|bounds| Box::new(Tenancy::new(bounds, options.ttl))),
        options,
        since,
        attempts: 0,
        turn: None,
        passed: false,
        counted: false,
        armed: false,
    }))
}

/// One acquisition on its way. It may have left something in the store; dropping it then cleans up on our thread.
pub(crate) struct Acquisition {
    shared: Arc<Shared>,
    store: Arc<Store>,
    claim: Arc<Claim>,
    /// Goes to the tenure.
    label: Option<Label>,
    options: Resolved,
    /// The thread that goes on with the caller's task, if it is all that its runtime has.
    home: Option<Home>,
    /// The thread that sleeps until this is over, if it is all that its runtime has.
    parked: Option<Home>,
    #[cfg(debug_assertions)]
    sorted: bool,
    since: BootInstant,
    deadline: BootInstant,
    attempts: u32,
    turn: Option<Turn>,
    /// Of a hold that may be passed on.
    tenancy: Option<Box<Tenancy>>,
    /// It was passed on to us.
    passed: bool,
    /// Among the jobs that a shutdown waits for.
    counted: bool,
    armed: bool,
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if self.armed {
            if let Some(turn) = &self.turn {
                turn.leave();
            }
            let turn = Box::new(self.turn.take());
            release::abandon_later(&self.shared, self.store.clone(), self.claim.clone(), turn);
        }
        if self.counted {
            self.shared.jobs.leave();
        }
    }
}

impl Acquisition {
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would keep all this twice")]
    pub(crate) fn run(mut self) -> impl Future<Output = Result<Guard>> + Send {
        async move {
            let won = self.win().await;
            let waited = self.shared.clock.now().since(self.since);
            match won {
                Ok(hold) => self.begin(hold, waited),
                Err(error) => Err(self.failed(error, waited)),
            }
        }
    }

    /// Tells of the failure, and what it was about.
    fn failed(&self, error: Error, waited: Duration) -> Error {
        let event = match error.kind() {
            ErrorKind::Busy | ErrorKind::QueueFull { .. } => Event::Busy,
            ErrorKind::AlreadyRun => Event::AlreadyRun,
            ErrorKind::WaitTimeout => Event::TimedOut { waited, attempts: self.attempts },
            kind => Event::Failed { kind: kind.clone() },
        };
        if let Some(label) = &self.label {
            self.shared.events.tell(label, &event);
        }
        self.explained(error)
    }

    async fn win(&mut self) -> Result<Hold> {
        self.turn = Some(self.join().await?);
        self.count();
        match self.take_over() {
            Some(Taken::Hold(hold)) => return Ok(hold),
            Some(Taken::Late(late)) => return Box::pin(self.begin_anew(late)).await,
            Some(Taken::Answer(answer)) => return Box::pin(self.contend(Ok(answer))).await,
            None => {}
        }
        match self.attempt().await? {
            Ok(Attempt::Acquired(hold)) if hold.validity.deadline() > self.shared.clock.now() => Ok(hold),
            // In a box, as all that an uncontended call does not need: its future stays small.
            answer => Box::pin(self.contend(answer)).await,
        }
    }

    /// A shutdown waits until this is over: until the hold is in the watchdog's table, or our thread abandons it.
    fn count(&mut self) {
        self.shared.jobs.enter();
        self.counted = true;
    }

    /// What was passed on to us came too late.
    async fn begin_anew(&mut self, late: Arc<Claim>) -> Result<Hold> {
        self.clear(late).await;
        let answer = self.attempt().await?;
        self.contend(answer).await
    }

    /// What came to us with the turn.
    fn take_over(&mut self) -> Option<Taken> {
        let passed = self.turn.as_mut()?.take()?;
        match passed.what {
            What::Hold { hold, .. } if hold.validity.deadline() <= self.shared.clock.now() => {
                Some(Taken::Late(passed.claim))
            }
            What::Hold { hold, tenancy } => {
                self.tenancy = Some(Box::new(tenancy));
                self.passed = true;
                Some(Taken::Hold(hold))
            }
            // Nobody has looked at it for longer than it lasts.
            What::Answer(Attempt::Acquired(hold)) if hold.validity.deadline() <= self.shared.clock.now() => {
                Some(Taken::Late(passed.claim))
            }
            What::Answer(answer) => {
                // As if we had asked ourselves, under the name that the release has asked with.
                // What is asked from here on goes over our own connection, and so does what undoes it.
                let origin = self.claim.origin;
                self.claim = if passed.claim.origin == origin {
                    passed.claim
                } else {
                    Arc::new(Claim { origin, ..(*passed.claim).clone() })
                };
                self.attempts += 1;
                self.armed = true;
                Some(match answer {
                    Attempt::Acquired(hold) => Taken::Hold(hold),
                    answer => Taken::Answer(answer),
                })
            }
        }
    }

    /// Frees what came too late: a renewal that was under way may have prolonged it in the store.
    async fn clear(&mut self, late: Arc<Claim>) {
        let backend = self.store.backend.clone();
        let request = async move { backend.abandon(&late).await };
        // Without an answer its lease ends it.
        let _ = self
            .store
            .ask(&self.shared.clock, request_bound(self.claim.ttl).min(Duration::from_secs(1)), request)
            .await;
    }

    /// The lock is ours: from here on a guard releases it.
    fn begin(&mut self, hold: Hold, waited: Duration) -> Result<Guard> {
        let label = self.label.take().ok_or_else(|| Error::new(ErrorKind::Internal, "an acquisition began twice"))?;
        self.armed = false;
        let since = if self.passed { self.shared.clock.now() } else { hold.validity.from };
        let mut tenancy = self.tenancy.take();
        if let Some(tenancy) = &mut tenancy
            && !self.passed
        {
            tenancy.begin(since);
        }
        let passes = tenancy.is_some();
        let tenure = Arc::new(Tenure::begin(Beginning {
            hold,
            store: self.store.clone(),
            shared: self.shared.clone(),
            label,
            parent: scope::innermost(),
            cadence: self.options.cadence,
            max_hold: self.options.max_hold,
            min_hold: self.options.min_hold,
            recorded: self.options.record && self.store.backend.capabilities().once_per,
            home: self.home,
            #[cfg(debug_assertions)]
            sorted: self.sorted,
            turn: self.turn.take(),
            since,
            tenancy,
        }));
        let guard = Guard::new(tenure.clone());
        if self.claim.kind.is_shared() {
            // The turn was the right to ask, and others may hold this beside us.
            tenure.pass_turn();
        } else if self.store.hands_on() && !passes {
            // The next of this process takes its place in the store's line now, so that the release can hand it the lock;
            // unless the release asks for it.
            tenure.share_turn();
        } else {
            tenure.keep_turn();
        }
        let shared = &self.shared;
        let added = if shared.closing.is_closed() { Err(shut_down()) } else { shared.watchdog.add(&tenure) };
        if let Err(error) = added {
            // Nobody was told that it began, so nobody is told that it ends; what its store noted of it is undone.
            tenure.end();
            self.armed = true;
            return Err(self.explained(error));
        }
        shared.events.tell(&tenure.label, &Event::Acquired { waited, attempts: self.attempts });
        Ok(guard)
    }

    fn explained(&self, error: Error) -> Error {
        error.with_key(self.claim.key.as_str()).with_backend(&self.store.name).with_attempts(self.attempts)
    }

    /// Waits for the right to ask: one caller of this process and key at a time.
    async fn join(&mut self) -> Result<Turn> {
        let max = self.options.max_waiters;
        let waits = (self.options.wait != Wait::None).then_some(max);
        match self.store.queue.join(&self.claim.key, self.wish(waits)) {
            Joined::Turn(turn) => Ok(turn),
            Joined::Full => Err(Error::new(
                ErrorKind::QueueFull { max },
                format!("{max} callers of this process wait for this lock already"),
            )),
            Joined::Mixed => Err(Error::new(
                ErrorKind::KeyConflict,
                "other callers of this process use the key for a lock of another kind",
            )),
            Joined::Taken => Err(busy(None)),
            // Behind the leftovers of an attempt that failed just now.
            Joined::Behind(waiting) if waits.is_none() => {
                let until = self.shared.clock.now().after(LEAST_PATIENCE);
                Box::pin(self.wait_for_turn(waiting, until)).await.map_err(|_| busy(None))
            }
            Joined::Behind(waiting) => {
                self.check_parking()?;
                self.store.backend.expects_others(&self.claim.key);
                Box::pin(self.wait_for_turn(waiting, self.deadline)).await
            }
        }
    }

    fn wish(&self, waits: Option<usize>) -> Wish {
        let member = self.tenancy.as_ref().map(|_| self.claim.ttl);
        let fair = self.claim.fair;
        let plain = self.claim.kind == Kind::Exclusive && !fair && self.claim.once_per.is_none();
        // Who counts attempts makes them.
        let carries = plain && waits.is_some() && self.options.attempts == u32::MAX;
        let carried = carries.then(|| (self.claim.clone(), self.deadline));
        Wish { kind: self.claim.kind, waits, home: self.home, member, fair, carried }
    }

    /// A caller that sleeps must not wait for a task that only its own thread could go on with.
    fn check_parking(&self) -> Result<()> {
        let Some(home) = self.parked else { return Ok(()) };
        let here = |tenure: &Arc<Tenure>| {
            tenure.home == Some(home)
                && Arc::ptr_eq(&tenure.store, &self.store)
                && tenure.hold.claim.key == self.claim.key
        };
        if self.store.queue.has(&self.claim.key, home) || self.shared.watchdog.holds().iter().any(here) {
            return Err(Error::new(
                ErrorKind::WouldDeadlock,
                "a task of this current-thread runtime has this lock or stands before us, and cannot go on while we block its thread; make the function async",
            ));
        }
        Ok(())
    }

    async fn wait_for_turn(&mut self, waiting: Waiting, until: BootInstant) -> Result<Turn> {
        let waiting = self.shared.clock.timeout_at(until, waiting);
        match self.shared.closing.or(waiting).await {
            None => Err(shut_down()),
            Some(Some(turn)) => Ok(turn),
            Some(None) => Err(timed_out(None)),
        }
    }
}

/// What came with a turn.
enum Taken {
    Hold(Hold),
    /// A hold that has come too late; only what was asked for.
    Late(Arc<Claim>),
    Answer(Attempt),
}

fn busy(left: Option<Duration>) -> Error {
    Error::new(ErrorKind::Busy, "somebody else holds the lock").with_retry_after(left)
}

fn already_run() -> Error {
    Error::new(ErrorKind::AlreadyRun, "the run of this period was started already")
}

fn timed_out(left: Option<Duration>) -> Error {
    let waited = "the wait ran out while others held the lock";
    // Two callers that hold what the other one waits for: here each can read its half of it.
    let text = match scope::held_keys() {
        held if held.is_empty() => Cow::Borrowed(waited),
        held => Cow::Owned(format!("{waited}; the caller itself holds {}", held.join(", "))),
    };
    Error::new(ErrorKind::WaitTimeout, text).with_retry_after(left)
}

pub(crate) fn shut_down() -> Error {
    Error::new(ErrorKind::ShutDown, "dlock was shut down")
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use super::*;
    use crate::Registry;
    use crate::options::Options;
    use crate::sites::{Named, Place};

    #[test]
    fn the_futures_of_an_uncontended_call_stay_small() {
        let place = Place::Builder(Arc::new(Named { name: String::new(), template: String::new() }));
        let ask = Ask::new(Registry::new(), place, Options::DEFAULT, None);
        ask.registry.install("memory", crate::backends::memory::Memory::new()).unwrap();
        ask.registry.set_default("memory").unwrap();
        let key = crate::Key::text("k").into();
        let Prepared::Asks(acquisition) = prepare(ask, &key, None).unwrap() else { panic!("nothing is held") };
        let future = acquisition.run();
        // Beyond 1 KiB glibc's allocator takes a lock that all threads share.
        let size = std::mem::size_of_val(&future);
        assert!(size <= 1024, "{size}");
    }
}
