//! One acquisition, from the call to the guard.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Attempt, Claim, Hold, Signal, Stand, Wake};
use crate::background::{background, here};
use crate::clock::BootInstant;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::key::{KeyBuf, LockKey};
use crate::local_queue::{Joined, Turn};
use crate::note::Note;
use crate::observe::Event;
use crate::options::{LockOptions, Resolved, Wait};
use crate::owner::Owner;
use crate::registry::{Job, Registry, Shared};
use crate::release;
use crate::scope;
use crate::sites::{Label, Place};
use crate::store::{Store, request_bound};
use crate::tenure::{Beginning, Tenure};
use crate::wait::{ask_again_at, full_jitter, news};

/// What a caller asks for.
pub(crate) struct Ask {
    pub(crate) registry: Registry,
    pub(crate) place: Place,
    pub(crate) options: LockOptions,
    pub(crate) backend: Option<Cow<'static, str>>,
    pub(crate) key: KeyBuf,
}

/// How often a store that fails is asked again, and how long after the first failure.
const RETRIES: u32 = 3;
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(5);

/// An attempt is given this long even if the wait is shorter: opening a connection takes its time.
const LEAST_PATIENCE: Duration = Duration::from_millis(250);

/// Acquires. Dropping the returned future leaves nothing behind in the store.
pub(crate) async fn acquire(ask: Ask) -> Result<Guard> {
    let shared = ask.registry.shared().clone();
    let since = shared.clock.now();
    let store = ask.registry.store(ask.backend.as_deref())?;
    let defaults = ask.registry.defaults();
    let label = Label::new(ask.place, store.name.clone());

    let prepared = prepare(&ask.registry, &ask.options, &defaults, &store, &ask.key, &label);
    let (options, claim) = prepared.map_err(|error| error.with_backend(&store.name))?;
    let mut acquisition = Acquisition {
        deadline: match options.wait {
            Wait::None => since,
            Wait::UpTo(wait) => since.after(wait),
            Wait::Forever => BootInstant::NEVER,
        },
        shared,
        store,
        claim: Arc::new(claim),
        options,
        attempts: 0,
    };
    let won = acquisition.win(defaults.max_waiters).await;
    let Acquisition { shared, store, claim, options, attempts, .. } = acquisition;
    let waited = shared.clock.now().since(since);
    let with_context = |error: Error| {
        match error.kind() {
            ErrorKind::Busy | ErrorKind::QueueFull { .. } => shared.events.tell(&label, &Event::Busy),
            ErrorKind::WaitTimeout => shared.events.tell(&label, &Event::TimedOut { waited, attempts }),
            kind => shared.events.tell(&label, &Event::Failed { kind: kind.clone() }),
        }
        error.with_key(claim.key.as_str()).with_backend(&store.name).with_attempts(attempts)
    };
    let (hold, turn, _job) = won.map_err(with_context)?;

    let tenure = Arc::new(Tenure::begin(Beginning {
        hold,
        store: store.clone(),
        shared: shared.clone(),
        label,
        parent: scope::innermost(),
        cadence: options.cadence,
        max_hold: options.max_hold,
        turn,
    }));
    // From here on the guard releases, also if the watchdog refuses.
    let guard = Guard::new(tenure.clone());
    let added = if shared.closing.is_closed() { Err(shut_down()) } else { shared.watchdog.add(&tenure) };
    if let Err(error) = added {
        // Nobody was told that it began, so nobody is told that it ends.
        tenure.end();
        let (key, backend) = (tenure.hold.claim.key.as_str(), &tenure.store.name);
        return Err(error.with_key(key).with_backend(backend).with_attempts(attempts));
    }
    shared.events.tell(&tenure.label, &Event::Acquired { waited, attempts });
    Ok(guard)
}

/// Everything that can be refused without asking the store.
fn prepare(
    registry: &Registry,
    options: &LockOptions,
    defaults: &crate::Defaults,
    store: &Arc<Store>,
    key: &KeyBuf,
    label: &Label,
) -> Result<(Resolved, Claim)> {
    registry.check_open()?;
    let options = options.resolve(defaults)?;
    let key = LockKey::within(&defaults.namespace, key)?;
    let named = |error: Error| error.with_key(key.as_str());
    background().map_err(named)?;
    if scope::holds(store, &key) {
        return Err(named(Error::new(
            ErrorKind::WouldDeadlock,
            "the enclosing call holds this lock already, and would wait for itself",
        )));
    }
    let claim = Claim {
        owner: Owner::fresh()?,
        ttl: options.ttl,
        renewed: options.cadence.is_some(),
        note: Note::new(label.name(), registry.shared().clock.wall_ms(), registry.trace().as_deref()),
        origin: if store.backend.capabilities().connection_per_hold { None } else { here() },
        key: key.clone(),
    };
    store.backend.capabilities().check(&claim).map_err(named)?;
    Ok((options, claim))
}

struct Acquisition {
    shared: Arc<Shared>,
    store: Arc<Store>,
    claim: Arc<Claim>,
    options: Resolved,
    deadline: BootInstant,
    attempts: u32,
}

impl Acquisition {
    async fn win(&mut self, max_waiters: usize) -> Result<(Hold, Turn, Job)> {
        let turn = self.turn(max_waiters).await?;
        // A shutdown waits until this is over: until the hold is in the watchdog's table, or our thread abandons it.
        let job = self.shared.jobs.begin();
        let mut pending = Pending {
            shared: self.shared.clone(),
            store: self.store.clone(),
            claim: self.claim.clone(),
            turn: Some(turn),
            armed: false,
        };
        let hold = self.ask_until_held(&mut pending).await?;
        pending.armed = false;
        let turn = pending.turn.take().ok_or_else(|| Error::new(ErrorKind::Internal, "the local turn is gone"))?;
        Ok((hold, turn, job))
    }

    /// Waits for the right to ask: one caller of this process and key at a time.
    async fn turn(&self, max_waiters: usize) -> Result<Turn> {
        match self.store.queue.join(&self.claim.key, max_waiters) {
            Joined::Turn(turn) => Ok(turn),
            Joined::Full => Err(Error::new(
                ErrorKind::QueueFull { max: max_waiters },
                format!("{max_waiters} callers of this process wait for this lock already"),
            )),
            Joined::Behind(_) if self.options.wait == Wait::None => Err(busy(None)),
            Joined::Behind(waiting) => {
                let waiting = self.shared.clock.timeout_at(self.deadline, waiting);
                match self.shared.closing.or(waiting).await {
                    None => Err(shut_down()),
                    Some(Some(turn)) => Ok(turn),
                    Some(None) => Err(timed_out(None)),
                }
            }
        }
    }

    async fn ask_until_held(&mut self, pending: &mut Pending) -> Result<Hold> {
        let shared = self.shared.clone();
        let style = self.store.backend.capabilities().wake;
        let mut last: Option<Wake> = None;
        let (mut contended, mut failed) = (0, 0);
        loop {
            // The last wake is kept until this attempt has answered: news may come in between.
            let answer = shared.closing.or(self.attempt(pending)).await.ok_or_else(shut_down)?;
            drop(last.take());
            let answer = match answer {
                Ok(Attempt::Contended(wake)) => Ok(wake),
                Ok(Attempt::Acquired(hold)) => match self.accept(hold).await {
                    Some(hold) => return Ok(hold),
                    None => Err(Error::outage("the store's answer came too late to be of use")),
                },
                Err(error) => Err(error),
            };
            let wake = match answer {
                Ok(wake) if self.options.wait == Wait::None => {
                    // Asked without a stand: nothing of ours is in the store.
                    pending.armed = false;
                    return Err(busy(wake.lease_left));
                }
                Ok(wake) => last.insert(wake),
                Err(error) => {
                    failed += 1;
                    if self.options.wait == Wait::None || failed > RETRIES || !error.is_retryable() {
                        return Err(error);
                    }
                    let pause = full_jitter(failed - 1, RETRY_FIRST, RETRY_MOST);
                    let again = shared.clock.now().after(pause);
                    if again >= self.deadline {
                        return Err(error);
                    }
                    shared.closing.or(shared.clock.sleep_until(again)).await.ok_or_else(shut_down)?;
                    continue;
                }
            };
            failed = 0;
            let told = shared.clock.now();
            let until = ask_again_at(told, wake, style, contended).min(self.deadline);
            let news = news(&self.store, &shared.clock, wake, until);
            let useful = match shared.closing.or(news).await.ok_or_else(shut_down)? {
                Ok(Some(Signal::Granted(hold))) => match self.accept(hold).await {
                    Some(hold) => return Ok(hold),
                    None => false,
                },
                Ok(_) => true,
                Err(_) => false,
            };
            if !useful {
                // A signal that failed has told nothing, and the next one may fail as fast: the pace of one without.
                wake.signal = None;
                let again = ask_again_at(shared.clock.now(), wake, style, contended).min(self.deadline);
                shared.closing.or(shared.clock.sleep_until(again)).await.ok_or_else(shut_down)?;
            }
            contended += 1;
            let now = shared.clock.now();
            if now >= self.deadline {
                let left = wake.lease_left.map(|left| left.saturating_sub(now.since(told)));
                drop(last);
                self.give_up(pending).await;
                return Err(timed_out(left));
            }
        }
    }

    async fn attempt(&mut self, pending: &mut Pending) -> Result<Attempt> {
        self.attempts += 1;
        pending.armed = true;
        let stand = if self.options.wait == Wait::None { Stand::No } else { Stand::Until(self.deadline) };
        let left = self.deadline.since(self.shared.clock.now()).max(LEAST_PATIENCE);
        let bound = request_bound(self.claim.ttl);
        let bound = if self.options.wait == Wait::None { bound } else { bound.min(left) };
        let (backend, claim) = (self.store.backend.clone(), self.claim.clone());
        let request = async move { backend.try_acquire(&claim, stand).await };
        self.store.ask(&self.shared.clock, bound, request).await
    }

    /// A grant that came so late that nothing is left of it is given back, not used.
    async fn accept(&self, hold: Hold) -> Option<Hold> {
        if hold.validity.deadline() > self.shared.clock.now() {
            return Some(hold);
        }
        let backend = self.store.backend.clone();
        let request = async move { backend.release(&hold).await };
        // If this fails, the abandon that is still armed, or the ttl, does it.
        let _ = self.store.ask(&self.shared.clock, request_bound(self.claim.ttl), request).await;
        None
    }

    /// Leaves the line. In place, so that nothing of ours is in the store when the caller hears of the timeout.
    async fn give_up(&self, pending: &mut Pending) {
        let (backend, claim) = (self.store.backend.clone(), self.claim.clone());
        let request = async move { backend.abandon(&claim).await };
        let bound = request_bound(self.claim.ttl).min(Duration::from_secs(1));
        if self.store.ask(&self.shared.clock, bound, request).await.is_ok() {
            pending.armed = false;
        }
    }
}

/// An acquisition that may have left something in the store; dropping it cleans up on our thread.
struct Pending {
    shared: Arc<Shared>,
    store: Arc<Store>,
    claim: Arc<Claim>,
    turn: Option<Turn>,
    armed: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.armed {
            let turn = Box::new(self.turn.take());
            release::abandon_later(&self.shared, self.store.clone(), self.claim.clone(), turn);
        }
    }
}

fn busy(left: Option<Duration>) -> Error {
    Error::new(ErrorKind::Busy, "somebody else holds the lock").with_retry_after(left)
}

fn timed_out(left: Option<Duration>) -> Error {
    Error::new(ErrorKind::WaitTimeout, "the wait ran out while others held the lock").with_retry_after(left)
}

pub(crate) fn shut_down() -> Error {
    Error::new(ErrorKind::ShutDown, "dlock was shut down")
}
