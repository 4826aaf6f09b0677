//! The builder of a lock. It returns a guard, or runs a closure under the lock.

mod options;

use std::convert::identity;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use dlock_contract::engine::{KeyBuf, key_hash};
use dlock_contract::{Backend, Error, Key, LockKey, Result};
use futures::future::BoxFuture;

use crate::acquire::request::Request;
use crate::acquire::several::acquire_all;
use crate::acquire::single::acquire;
use crate::api::blocking::{acquire_sync, hold_sync, release_sync};
use crate::api::outcome::{CarriesError, LockReturn, Ran};
use crate::api::registry::Registry;
use crate::api::run::Run;
use crate::events::store_event::Operation;
use crate::guard::Guard;
use crate::guard::guard_set::Guards;
use crate::guard::held::Held;
use crate::hold::store::{Store, request_bound};
use crate::options::{Options, Wait};
use crate::site::{CallSite, Keys, Named};

/// A lock to be acquired; made by [`lock`](crate::lock). Options that are not set come from the registry's defaults.
///
/// ```
/// # use dlock_runtime as dlock;
/// # use std::time::Duration;
/// use dlock::{Key, lock};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), dlock_runtime::Error> {
/// dlock::install("local", dlock_memory::Memory::new())?;
///
/// let guard = lock(Key::text("stock:").value(&42)).backend("local").ttl(Duration::from_secs(30)).acquire().await?;
/// println!("token {}", guard.fence()?);
/// guard.release().await?;
///
/// let sum = lock("nightly").backend("local").run(|_held| async { 1 + 1 }).await?;
/// assert_eq!(sum, 2);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "nothing is locked until `acquire`, `try_acquire` or `run`"]
pub struct Lock<K = Key> {
    registry: Registry,
    key: K,
    name: String,
    backend: Option<String>,
    namespace: Option<Box<str>>,
    noted: Option<Box<str>>,
    options: Options,
}

/// Several locks to be acquired together, all or none; made by [`lock_all`](crate::lock_all).
///
/// They are acquired in the order of their names, whatever order they are given in, and each once, so that two callers
/// cannot wait for each other; within one wait; and released in reverse. [`Guards::held`] returns them in the order in
/// which they were given.
///
/// ```
/// # use dlock_runtime as dlock;
/// # use dlock_runtime::{Key, lock_all};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), dlock_runtime::Error> {
/// dlock::install("local", dlock_memory::Memory::new())?;
/// let accounts = [7, 3].map(|id| Key::text("account:").value(&id));
/// let guards = lock_all(accounts).backend("local").acquire().await?;
/// assert_eq!(guards.held().count(), 2);
/// guards.release().await?;
/// # Ok(()) }
/// ```
pub type LockAll = Lock<Vec<Key>>;

impl Registry {
    /// A lock on `key`, to be acquired by hand; see [`Lock`].
    #[track_caller]
    pub fn lock(&self, key: impl Into<Key>) -> Lock {
        Lock::new(self.clone(), key.into())
    }

    /// Several locks, to be acquired together, all or none; see [`LockAll`].
    #[track_caller]
    pub fn lock_all(&self, keys: impl IntoIterator<Item = impl Into<Key>>) -> LockAll {
        Lock::new(self.clone(), keys.into_iter().map(Into::into).collect())
    }
}

impl<K> Lock<K> {
    #[track_caller]
    pub(crate) fn new(registry: Registry, key: K) -> Self {
        let caller = Location::caller();
        let name = format!("{}:{}", caller.file(), caller.line());
        Self { registry, key, name, backend: None, namespace: None, noted: None, options: Options::DEFAULT }
    }

    fn request_for(&self, template: &str) -> Request {
        let call_site = CallSite::Builder(Named::new(&self.name, template));
        let backend = self.backend.clone().map(Into::into);
        let request = Request::new(self.registry.context().clone(), call_site, self.options, backend);
        Request { namespace: self.namespace.clone(), noted: self.noted.clone(), ..request }
    }

    /// The key, or its hash if the key is sensitive.
    fn shown(&self, key: &Key) -> String {
        let key = key.to_string();
        if self.options.sensitive { key_hash(&key) } else { key }
    }

    fn write_debug(&self, f: &mut fmt::Formatter<'_>, key: &dyn fmt::Debug) -> fmt::Result {
        f.debug_struct("Lock")
            .field("key", key)
            .field("name", &self.name)
            .field("backend", &self.backend)
            .field("namespace", &self.namespace)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_debug(f, &self.shown(&self.key))
    }
}

impl fmt::Debug for LockAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_debug(f, &self.key.iter().map(|key| self.shown(key)).collect::<Vec<_>>())
    }
}

impl Lock {
    /// Acquires, and gives a guard.
    ///
    /// The enclosing call of a later lock is the *body* of an annotated function or of [`run`](Self::run): a task that
    /// holds a guard and asks for the same lock again waits for itself until its wait ends.
    ///
    /// # Errors
    /// See [`ErrorKind`](crate::ErrorKind): busy, wait timeout, outage, would-deadlock, and misuse of every kind.
    pub async fn acquire(self) -> Result<Guard> {
        refuse_timeout(&self.options)?;
        self.acquire_for_body().await.inspect(Guard::note_got)
    }

    async fn acquire_for_body(self) -> Result<Guard> {
        let request = self.request_for(self.key.template());
        acquire(request, &self.key.into(), None, 0, identity).await
    }

    /// Acquires the lock if nobody holds it now; otherwise [`ErrorKind::Busy`](crate::ErrorKind::Busy).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Guard> {
        self.wait(Wait::None).acquire().await
    }

    /// As [`acquire`](Self::acquire), for code that is not async: this thread sleeps meanwhile.
    ///
    /// Works on any thread. The other tasks of a worker of a multi-thread runtime go on elsewhere meanwhile, as in
    /// `tokio::task::block_in_place`; those of a current-thread runtime wait. Dropping the guard releases in the
    /// background.
    ///
    /// A guard counts for the thread on which it was acquired, also once it was moved to another one: on a
    /// current-thread runtime, and in a task of a `LocalSet`, a blocking caller is refused while it lives.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock) also where the
    /// holder is a task that only this thread could go on with (of a current-thread runtime, or of a `LocalSet` that a
    /// multi-thread runtime drives).
    pub fn acquire_blocking(self) -> Result<Guard> {
        refuse_timeout(&self.options)?;
        let request = self.request_for(self.key.template()).parking();
        acquire_sync(request, Keys::One(self.key.into())).map(Guards::into_first).inspect(Guard::note_got)
    }

    /// Acquires, runs the body, releases. The body is dropped at its next await if the lock is lost.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`ErrorKind::Lost`](crate::ErrorKind::Lost): `Ok` means that the lock was
    /// held until the body had ended. It cannot see whether the body has succeeded. So, where the body works in the lock's own
    /// transaction (`way=row` of the SQL stores), it undoes that work and fails; use [`run_fallible`](Self::run_fallible).
    pub async fn run<F, Fut>(self, body: F) -> Result<Fut::Output>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        let options = self.options;
        let guard = self.acquire_for_body().await?;
        let held = Held::clone(&guard);
        let guards = Guards::one(guard);
        // The closure runs before it gives its future. That part belongs to the body too.
        let body = guards.begin(|| body(held))?;
        result(Run::holding(&options, guards, body).await)
    }

    /// As [`run`](Self::run), for a body that gives a [`Result`](std::result::Result) whose error can carry the lock's. An error
    /// of the body counts as its failure: where the body works in the lock's own transaction, it is rolled back, and else
    /// committed.
    ///
    /// # Errors
    /// As [`run`](Self::run), the body's own, and where the end of the lock's transaction decides
    /// [`ErrorKind::CommitRefused`](crate::ErrorKind::CommitRefused) and
    /// [`ErrorKind::CommitUnknown`](crate::ErrorKind::CommitUnknown).
    pub async fn run_fallible<F, Fut, T, E>(self, body: F) -> std::result::Result<T, E>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = std::result::Result<T, E>>,
        E: CarriesError,
    {
        let options = self.options;
        let guard = self.acquire_for_body().await.map_err(E::carry)?;
        let held = Held::clone(&guard);
        let guards = Guards::one(guard);
        let body = guards.begin(|| body(held)).map_err(E::carry)?;
        let run = Run::holding(&options, guards, body);
        LockReturn::from_ran(run.judged_by(|output| output.is_ok()).await)
    }

    /// As [`run`](Self::run), for code that is not async: the body runs on this thread. A loss cannot stop it; it can
    /// ask [`Held::check`], and the caller gets the loss in any case. Work that the body only returns, such as a future, runs
    /// without the lock.
    ///
    /// # Errors
    /// As [`acquire_blocking`](Self::acquire_blocking), and [`ErrorKind::Lost`](crate::ErrorKind::Lost).
    pub fn run_blocking<T>(self, body: impl FnOnce(Held) -> T) -> Result<T> {
        if self.options.timeout.is_some() {
            let text = "a function that is not async cannot be stopped; set time limits on the calls that it waits for";
            return Err(Error::config("timeout", text));
        }
        let guard = self.acquire_blocking()?;
        let held = Held::clone(&guard);
        result(hold_sync(Guards::one(guard), None, move || body(held)))
    }

    /// The namespace, instead of the registry's.
    pub(crate) fn namespace(mut self, namespace: Box<str>) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// The name in the note that other processes read, instead of the place in the source.
    pub(crate) fn noted(mut self, name: impl Into<Box<str>>) -> Self {
        self.noted = Some(name.into());
        self
    }

    /// The lock is named by its key in the log and in metrics. The note keeps the place in the source.
    pub(crate) fn named_by_key(self) -> Self {
        let (name, place) = (self.key.template().to_owned(), self.name.clone());
        self.noted(place).name(name)
    }

    /// It decides who leads. It is refused if the store gives no fencing tokens, which are the terms.
    pub(crate) fn of_election(mut self) -> Self {
        (self.options.fence, self.options.election) = (true, true);
        self
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn shown_name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn is_sensitive(&self) -> bool {
        self.options.sensitive
    }

    pub(crate) async fn look<T: Send + 'static>(
        self,
        request: impl for<'a> FnOnce(&'a dyn Backend, &'a LockKey) -> BoxFuture<'a, Result<T>> + Send + 'static,
    ) -> Result<T> {
        Ok(self.look_by(Operation::Inspect, request).await?.0)
    }

    pub(crate) async fn look_by<T: Send + 'static>(
        self,
        operation: Operation,
        request: impl for<'a> FnOnce(&'a dyn Backend, &'a LockKey) -> BoxFuture<'a, Result<T>> + Send + 'static,
    ) -> Result<(T, Arc<Store>)> {
        let key = KeyBuf::from(self.key);
        let defaults = self.registry.defaults();
        let bound = request_bound(defaults.ttl);
        let opened = self.registry.context().opened(self.backend.as_deref(), bound).await;
        let sensitive = self.options.sensitive;
        let store = opened.map_err(|error| error.with_key_or_hash(&key.0, sensitive))?;
        let namespace = self.namespace.as_deref().unwrap_or(&defaults.namespace);
        let named = |error: Error| error.with_key_or_hash(&key.0, sensitive).with_backend(&store.name);
        let (key, identity) = store.identify(namespace, &key).map_err(named)?;
        let named = |error: Error| store.named(error, (&key, identity.lock()), sensitive);
        dlock_store::background().map_err(named)?;
        let answer = store.ask(operation, bound, &key, request).await.map_err(named)?;
        Ok((answer, store))
    }
}

impl LockAll {
    /// Acquires all of them, or none: one after another in the order of their encoded names, or by one request where
    /// the store can take them together and all of them are free.
    ///
    /// # Errors
    /// As [`Lock::acquire`], for the first that cannot be had; the others are given back before.
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), as soon as one is lost while others are waited for. No key at all,
    /// or more than 10 000, is [`ErrorKind::ConfigInvalid`](crate::ErrorKind::ConfigInvalid).
    pub async fn acquire(self) -> Result<Guards> {
        refuse_timeout(&self.options)?;
        let request = self.request();
        acquire_all(request, self.keys()).await.inspect(Guards::note_got)
    }

    /// As [`acquire`](Self::acquire), for code that is not async.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire) and [`Lock::acquire_blocking`].
    pub fn acquire_blocking(self) -> Result<Guards> {
        refuse_timeout(&self.options)?;
        let request = self.request().parking();
        acquire_sync(request, self.keys()).inspect(Guards::note_got)
    }

    fn request(&self) -> Request {
        self.request_for(self.key.first().map_or("", Key::template))
    }

    fn keys(self) -> Keys {
        Keys::Several(self.key.into_iter().map(Into::into).collect())
    }
}

impl Guard {
    /// As [`release`](Self::release), for code that is not async.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub fn release_blocking(self) -> Result<()> {
        self.check()?;
        self.note_success();
        release_sync(Guards::one(self))
    }
}

impl Guards {
    /// As [`release`](Self::release), for code that is not async.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub fn release_blocking(self) -> Result<()> {
        let checked = self.check();
        self.note_end(checked.is_ok());
        checked.and(release_sync(self))
    }
}

/// A guard has no body that could be stopped.
fn refuse_timeout(options: &Options) -> Result<()> {
    match options.timeout {
        None => Ok(()),
        Some(_) => Err(Error::config(
            "timeout",
            "`timeout` limits the body of `run`; set time limits on what you do while a guard lives",
        )),
    }
}

fn result<T>(ran: Ran<T>) -> Result<T> {
    match ran {
        Ran::Done(output) => Ok(output),
        Ran::Failed(error) | Ran::Lost(error, _) => Err(error),
    }
}
