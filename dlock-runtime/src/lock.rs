//! The programmatic twin of the attribute: a builder that gives a guard, and one that runs a closure.

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::guard::{Guard, Held};
use crate::key::{Key, LockKey};
use crate::locker::{Ask, acquire};
use crate::note::Note;
use crate::options::{LockOptions, Renew, Wait};
use crate::registry::Registry;
use crate::run::{Ran, Run};
use crate::sites::{Named, Place};
use crate::store::request_bound;

/// A lock to be acquired; made by [`lock`](crate::lock). What is not said here comes from the registry's defaults.
///
/// ```
/// # use std::time::Duration;
/// use dlock_runtime::{Key, lock};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), dlock_runtime::Error> {
/// dlock_runtime::connect("local", "memory://").await?;
///
/// let guard = lock(Key::text("stock:").value(&42)).backend("local").ttl(Duration::from_secs(30)).acquire().await?;
/// println!("token {}", guard.fence()?);
/// guard.release().await?;
///
/// let sum = lock("nightly").backend("local").run(|_held| async { 1 + 1 }).await?;
/// assert_eq!(sum, 2);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is locked until `acquire`, `try_acquire` or `run`"]
pub struct Lock {
    registry: Registry,
    key: Key,
    name: String,
    backend: Option<String>,
    options: LockOptions,
}

impl Lock {
    #[track_caller]
    pub(crate) fn new(registry: Registry, key: Key) -> Self {
        let caller = Location::caller();
        let name = format!("{}:{}", caller.file(), caller.line());
        Self { registry, key, name, backend: None, options: LockOptions::default() }
    }

    /// The name of an installed backend. Default: the registry's default.
    pub fn backend(mut self, name: impl Into<String>) -> Self {
        self.backend = Some(name.into());
        self
    }

    /// How long the store keeps the lock without a renewal.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// How long to wait for others.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Whether and how often to renew. Default: at a third of the ttl.
    pub fn renew(mut self, renew: Renew) -> Self {
        self.options.renew = Some(renew);
        self
    }

    /// How often the store is asked at most; then the wait is over, however long it might still last. Default: as often
    /// as the wait allows.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.options.attempts = Some(attempts);
        self
    }

    /// The longest hold: there renewal stops and the hold is lost.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.max_hold = Some(max_hold);
        self
    }

    /// The name in events and in the note. Default: the place in the source where the lock was made.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Acquires, and gives a guard.
    ///
    /// The enclosing call of a later lock is the *body* of an annotated function or of [`run`](Self::run): a task that
    /// holds a guard and asks for the same lock again waits for itself until its wait ends.
    ///
    /// # Errors
    /// See [`ErrorKind`](crate::ErrorKind): busy, wait timeout, outage, would-deadlock, and misuse of every kind.
    pub async fn acquire(self) -> Result<Guard> {
        acquire(self.ask()).await
    }

    /// Acquires if nobody holds the lock now; else [`ErrorKind::Busy`](crate::ErrorKind::Busy).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Guard> {
        self.wait(Wait::None).acquire().await
    }

    /// Acquires, runs the body, releases. The body is dropped at its next await if the lock is lost.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`ErrorKind::Lost`](crate::ErrorKind::Lost): `Ok` means that the lock was
    /// ours until the body had ended.
    pub async fn run<F, Fut>(self, body: F) -> Result<Fut::Output>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        let guard = self.acquire().await?;
        let body = body(Held::clone(&guard));
        match Run::holding(guard, body).await {
            Ran::Done(output) => Ok(output),
            Ran::NotRun(error) | Ran::Lost(error, _) => Err(error),
        }
    }

    /// The note of the present holder, as every process sees it; `None` if nobody holds the lock.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), without the waiting.
    pub async fn holder(self) -> Result<Option<Note>> {
        let store = self.registry.store(self.backend.as_deref())?;
        let defaults = self.registry.defaults();
        let key = LockKey::within(&defaults.namespace, &self.key.into())?;
        crate::background::background()?;
        let backend = store.backend.clone();
        let asked = key.clone();
        let request = async move { backend.holder(&asked).await };
        let bound = request_bound(defaults.ttl);
        let note = store.ask(&self.registry.shared().clock, bound, request).await;
        note.map_err(|error| error.with_key(key.as_str()).with_backend(&store.name))
    }

    fn ask(self) -> Ask {
        let named = Named { name: self.name, template: self.key.template().to_owned() };
        Ask {
            registry: self.registry,
            place: Place::Builder(Arc::new(named)),
            options: self.options,
            backend: self.backend.map(Into::into),
            key: self.key.into(),
        }
    }
}
