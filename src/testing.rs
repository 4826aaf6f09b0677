//! A kit for the tests of code that locks: no server, a registry for each test, a store that fails when told to, and a
//! clock to turn.

mod inspect;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Batch, BootInstant, Claim, Error, Health, Hold, Holder, Inspect, Keeps, LastSuccess, LockKey,
    LockState, Periods, Profile, Queue, Released, Reservation, Reserved, Result, RunEnd, Session, Signal, Standing,
    Together, Tokens, Wake,
};
use dlock_store::Clock;
use futures::future::BoxFuture;

use dlock_memory::Memory;
pub use dlock_runtime::__kit::Entered;
use dlock_runtime::__kit::{InUse, enter};
use dlock_runtime::{Election, Key, Lock, sites};

use crate::Registry;

/// A registry of its own for one test, with a store in memory under every name that annotated functions use, which is
/// the default too.
///
/// While it is [entered](Self::enter), the annotated functions that this thread calls, and [`TestKit::lock`], use it
/// and nothing else; tests that run side by side do not meet.
///
/// ```
/// # use std::time::Duration;
/// use dlock::testing::TestKit;
/// use dlock::ErrorKind;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let kit = TestKit::new();
/// let _in = kit.enter();
///
/// kit.busy_for(Duration::from_secs(5));
/// let busy = kit.lock("nightly").try_acquire().await.unwrap_err();
/// assert_eq!(*busy.kind(), ErrorKind::Busy);
///
/// kit.clock().advance(Duration::from_secs(5));
/// let guard = kit.lock("nightly").try_acquire().await.unwrap();
///
/// kit.outage(true);
/// kit.clock().advance(Duration::from_secs(60)); // no renewal came through
/// assert!(guard.check().unwrap_err().is_lost());
/// # }
/// ```
pub struct TestKit {
    registry: Registry,
    store: Arc<dyn Backend>,
    clock: Clock,
    switches: Arc<Mutex<Switches>>,
    _in_use: InUse,
}

#[derive(Debug, Default)]
struct Switches {
    busy_until: Option<BootInstant>,
    lost_after: Option<Duration>,
    outage: bool,
}

impl TestKit {
    /// A kit on a clock of its own. In a test with `start_paused` it follows tokio's clock; [`Clock::advance`] moves it
    /// further. Elsewhere it stands still until it is advanced.
    ///
    /// A call that waits for it for 5 s of real time, while nobody moves it, ends with an error of the kind
    /// [`WouldDeadlock`](crate::ErrorKind::WouldDeadlock) that says so, and [`Registry::shutdown`](crate::Registry::shutdown) ends.
    #[must_use]
    pub fn new() -> Self {
        Self::on(&Clock::of_kit())
    }

    /// A kit on the machine's clock.
    #[must_use]
    pub fn in_real_time() -> Self {
        Self::on(&Clock::system())
    }

    fn on(clock: &Clock) -> Self {
        let registry = Registry::with_clock(clock);
        let (clock, switches) = (clock.clone(), Arc::default());
        let store: Arc<dyn Backend> = Arc::new(Switchable {
            memory: Memory::with_clock(&clock),
            clock: clock.clone(),
            switches: Arc::clone(&switches),
        });
        let kit = Self { registry, store, clock, switches, _in_use: InUse::new() };
        for name in std::iter::once("memory").chain(sites().iter().filter_map(|site| site.backend())) {
            // Several sites name one backend.
            let _ = kit.registry.install_shared(name, kit.store.clone());
        }
        let _ = kit.registry.set_default("memory");
        kit
    }

    /// Installs the kit's store under a further name: one that is only named while the program runs.
    ///
    /// # Errors
    /// As [`Registry::install`](crate::Registry::install).
    pub fn install(&self, name: &str) -> Result<()> {
        self.registry.install_shared(name, self.store.clone())
    }

    /// Makes this thread's annotated functions use the kit, until the returned value is dropped. In a `#[tokio::test]`,
    /// whose tasks run on one thread, that is all; on several threads wrap each task in [`scope`](Self::scope).
    #[must_use = "the kit is left when this is dropped"]
    pub fn enter(&self) -> Entered {
        enter(&self.registry)
    }

    /// Makes a future use the kit, wherever it is polled.
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        Scoped { registry: self.registry.clone(), future: Box::pin(future) }
    }

    /// The kit's registry: to set defaults, to tune sites, to observe, to shut down.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The kit's clock, to be turned with [`Clock::advance`].
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A lock to be acquired by hand, in the kit.
    #[track_caller]
    pub fn lock(&self, key: impl Into<Key>) -> Lock {
        self.registry.lock(key)
    }

    /// An election, in the kit.
    #[track_caller]
    pub fn elect(&self, name: impl Into<Key>) -> Election {
        self.registry.elect(name)
    }

    /// For this time on the kit's clock, another owner holds every lock. Zero ends it.
    pub fn busy_for(&self, time: Duration) {
        self.switches().busy_until = Some(self.clock.now().after(time));
    }

    /// Every lock that is granted from now on is lost this time after its grant, whatever its ttl. `None` ends it.
    pub fn lost_after(&self, time: impl Into<Option<Duration>>) {
        self.switches().lost_after = time.into();
    }

    /// From now on the store does not answer, or answers again.
    pub fn outage(&self, down: bool) {
        self.switches().outage = down;
    }

    fn switches(&self) -> MutexGuard<'_, Switches> {
        lock(&self.switches)
    }
}

impl Default for TestKit {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TestKit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestKit").field("switches", &*self.switches()).finish_non_exhaustive()
    }
}

struct Scoped<F> {
    registry: Registry,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _in = enter(&self.registry);
        self.future.as_mut().poll(cx)
    }
}

/// The store in memory, with switches.
struct Switchable {
    memory: Memory,
    clock: Clock,
    switches: Arc<Mutex<Switches>>,
}

fn lock(switches: &Mutex<Switches>) -> MutexGuard<'_, Switches> {
    switches.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Switchable {
    /// The store, unless the test has switched it off.
    fn up(&self) -> Result<&Memory> {
        let is_off = lock(&self.switches).outage;
        if is_off { Err(Error::outage("the test has switched the store off")) } else { Ok(&self.memory) }
    }

    /// The hold of another owner that the test has switched on, while it lasts.
    fn busy(&self) -> Option<Wake> {
        let until = lock(&self.switches).busy_until?;
        let now = self.clock.now();
        (now < until).then(|| Wake::poll().ask_by(until).lease_left(until.since(now)))
    }
}

/// A hold that ends before its ttl does, if that was switched on.
fn shortened(switches: &Mutex<Switches>, mut hold: Hold) -> Hold {
    if let Some(time) = lock(switches).lost_after {
        hold.validity.granted = hold.validity.granted.min(time);
        hold = hold.with_session(Arc::new(Shortened));
    }
    hold
}

/// The mark of a hold that no renewal prolongs.
struct Shortened;

impl Session for Shortened {}

impl Backend for Switchable {
    fn profile(&self) -> &Profile {
        self.memory.profile()
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            let memory = self.up()?;
            if let Some(wake) = self.busy() {
                return Ok(Attempt::Contended(wake));
            }
            Ok(match memory.try_acquire(claim, queue).await? {
                Attempt::Acquired(hold) => Attempt::Acquired(shortened(&self.switches, hold)),
                Attempt::Contended(mut wake) => {
                    if let Some(signal) = wake.signal.take() {
                        let switches = self.switches.clone();
                        wake.signal = Some(Box::pin(async move {
                            Ok(match signal.await? {
                                Signal::Granted(hold) => Signal::Granted(shortened(&switches, hold)),
                                Signal::Ask => Signal::Ask,
                            })
                        }));
                    }
                    Attempt::Contended(wake)
                }
                Attempt::AlreadyRun => Attempt::AlreadyRun,
            })
        })
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            // In an outage no renewal comes through.
            let memory = match self.up() {
                Ok(memory) => memory,
                Err(down) => return holds.iter().map(|_| Err(down.again())).collect(),
            };
            let mut standings = memory.renew(holds).await;
            for (hold, standing) in holds.iter().zip(&mut standings) {
                if hold.session::<Shortened>().is_some() {
                    *standing = Ok(Standing::Renewed(hold.validity));
                }
            }
            standings
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move { self.up()?.release(hold).await })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.up()?.abandon(claim).await })
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move {
            let mut state = self.up()?.look(key).await?;
            if let Some(wake) = self.busy().filter(|_| state.holders.is_empty()) {
                state.holders.push(Holder::foreign_client(wake.lease_left));
            }
            Ok(state)
        })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(async move { self.up()?.ready().await })
    }

    fn keeps(&self) -> Option<&dyn Keeps> {
        Some(self)
    }

    fn periods(&self) -> Option<&dyn Periods> {
        Some(self)
    }

    fn tokens(&self) -> Option<&dyn Tokens> {
        Some(self)
    }

    fn batch(&self) -> Option<&dyn Batch> {
        Some(self)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}

impl Keeps for Switchable {
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move { self.up()?.keep(hold, time, run).await })
    }
}

impl Periods for Switchable {
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move { self.up()?.end_run(hold, run).await })
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        Box::pin(async move { self.up()?.last_success(key).await })
    }
}

impl Tokens for Switchable {
    fn reserve<'a>(&'a self, hold: &'a Hold, reservation: Reservation) -> BoxFuture<'a, Result<Reserved>> {
        Box::pin(async move {
            let memory = self.up()?;
            if hold.session::<Shortened>().is_some() {
                return Ok(Reserved::Awaited);
            }
            memory.reserve(hold, reservation).await
        })
    }
}

impl Batch for Switchable {
    fn try_acquire_all<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Together>> {
        Box::pin(async move {
            let memory = self.up()?;
            if self.busy().is_some() {
                return Ok(Together::Contended);
            }
            Ok(match memory.try_acquire_all(claims).await? {
                Together::Acquired(holds) => {
                    Together::Acquired(holds.into_iter().map(|hold| shortened(&self.switches, hold)).collect())
                }
                other => other,
            })
        })
    }
}
