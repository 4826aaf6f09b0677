//! The stores, each installed once in this process, and other processes that use them.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dlock::backends::memory::Memory;
use dlock::backends::redis::Redis;
use dlock::backends::sqlite::Sqlite;
use dlock::{Clock, Error, ErrorKind, Key, LockKey, LossCause, Mode, OncePer, Registry, Wait};
use dlock_contract::{Attempt, Backend, Claim, Hold, Owner, Queue, Released};
use dlock_testkit::servers::{self, Instance, shared};
use dlock_testkit::wait_until;
use futures::FutureExt;
use futures::future::join_all;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The names under which the stores are installed, which are the values of `backend`.
pub(crate) const STORES: [&str; 3] = ["memory", "sqlite", "redis"];

/// A store whose server has died.
pub(crate) const DOWN: &str = "down";

/// The same store under further names, each with a circuit breaker of its own.
pub(crate) const DOWN_TOO: [&str; 3] = ["down1", "down2", "down3"];

struct World {
    namespace: String,
    stores: [Arc<dyn Backend>; 3],
    /// Its folder is that of the SQLite file too, and is removed when this process has ended.
    _down: Instance,
}

/// Installed from a runtime that is gone when the first test begins, as the locks must not care.
fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || runtime().block_on(install())).join().unwrap()
    })
}

async fn install() -> World {
    let down = Instance::start(servers::Redis::default()).unwrap();
    dlock::connect(DOWN, &down.url()).await.unwrap();
    for name in DOWN_TOO {
        dlock::connect(name, &down.url()).await.unwrap();
    }
    down.kill9().unwrap();
    let path = format!("sqlite://{}", down.folder().join("locks.db").display());
    // A server from outside remembers the runs of earlier processes.
    let namespace = format!("options{}", &Owner::fresh().unwrap().to_hex()[..12]);
    dlock::configure(|defaults| defaults.namespace.clone_from(&namespace)).unwrap();
    let clock = Clock::system();
    let stores: [Arc<dyn Backend>; 3] = [
        Arc::new(Memory::new()),
        Arc::new(Sqlite::open(&path, &clock).await.unwrap()),
        Arc::new(Redis::connect(&shared().redis().unwrap(), &clock).await.unwrap()),
    ];
    for (name, store) in STORES.into_iter().zip(&stores) {
        Registry::global().install_shared(name, store.clone()).unwrap();
    }
    World { namespace, stores, _down: down }
}

/// The first part of all keys.
pub(crate) fn namespace() -> &'static str {
    &world().namespace
}

/// For tests that name their stores themselves.
pub(crate) fn installed() {
    world();
}

/// Runs the test on each store, side by side.
pub(crate) async fn on_each(test: impl AsyncFn(&'static str)) {
    world();
    let ends = join_all(STORES.map(|store| AssertUnwindSafe(test(store)).catch_unwind())).await;
    for (store, end) in STORES.into_iter().zip(ends) {
        if let Err(panic) = end {
            eprintln!("on {store}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// A hold of another owner that this process does not know.
pub(crate) struct Other {
    store: &'static Arc<dyn Backend>,
    hold: Hold,
}

impl Other {
    /// Holds an exclusive lock.
    pub(crate) async fn holds(store: &str, key: impl Into<Key>) -> Self {
        Self::with(store, key, LONG, |_| ()).await
    }

    pub(crate) async fn holds_as(store: &str, key: impl Into<Key>, mode: Mode) -> Self {
        Self::with(store, key, LONG, |claim| claim.mode = mode).await
    }

    /// Holds a lock whose waiters are served in the order in which they came.
    pub(crate) async fn holds_fairly(store: &str, key: impl Into<Key>) -> Self {
        Self::with(store, key, LONG, |claim| claim.fair = true).await
    }

    /// Starts the run of a period, and dies so soon after.
    pub(crate) async fn dies_running(store: &str, key: impl Into<Key>, period: Duration, ttl: Duration) {
        Self::with(store, key, ttl, |claim| claim.once_per = Some(Box::new(OncePer::new(period)))).await;
    }

    async fn with(store: &str, key: impl Into<Key>, ttl: Duration, change: impl FnOnce(&mut Claim)) -> Self {
        let world = world();
        let at = STORES.iter().position(|name| *name == store).unwrap();
        let key = LockKey::new(&world.namespace, key.into()).unwrap();
        let mut claim = Claim::new(key, ttl, "tests::options").unwrap();
        change(&mut claim);
        let store = &world.stores[at];
        match store.try_acquire(&Arc::new(claim), Queue::Leave).await.unwrap() {
            Attempt::Acquired(hold) => Self { store, hold },
            _ => panic!("the lock is not free"),
        }
    }

    pub(crate) async fn releases(self) {
        assert_eq!(self.store.release(&self.hold).await.unwrap(), Released::Released);
    }
}

/// A registry as another process would have it: its own turns, on the same stores.
pub(crate) fn stranger(store: &str) -> Registry {
    let world = world();
    let at = STORES.iter().position(|name| *name == store).unwrap();
    let registry = Registry::new();
    registry.configure(|defaults| defaults.namespace.clone_from(&world.namespace)).unwrap();
    registry.install_shared(store, world.stores[at].clone()).unwrap();
    registry
}

/// Checks that nobody holds the key: another owner gets it.
pub(crate) async fn is_free(store: &str, key: impl Into<Key>) {
    Other::holds(store, key).await.releases().await;
}

#[track_caller]
pub(crate) fn is_busy<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert_eq!(*result.unwrap_err().kind(), ErrorKind::Busy);
}

/// `max_hold` has ended the hold. Without a renewal in time its lease ends before.
#[track_caller]
pub(crate) fn is_over(error: &Error) {
    assert!(*error.kind() != ErrorKind::Lost(LossCause::Deadline), "it was not renewed in time: nothing is proven");
    assert_eq!(*error.kind(), ErrorKind::Lost(LossCause::MaxHold));
}

/// Calls again after an outage: so ends a short wait if the store's first answer comes too late, as on a busy machine.
pub(crate) async fn answered<T>(call: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..10 {
        match call().await {
            Err(error) if *error.kind() == ErrorKind::Outage => {}
            end => return end,
        }
    }
    panic!("no call had an answer in time: nothing is proven");
}

/// Waits until so many callers of this process wait for a lock that is held. One more is refused then; until then it waits
/// for a moment itself.
pub(crate) async fn until_waiting(store: &str, key: &'static str, callers: usize) {
    loop {
        let one_more = dlock::lock(key).backend(store).wait(Wait::UpTo(50 * MS)).max_waiters(callers);
        match one_more.acquire().await.map(drop).expect_err("it is held").kind() {
            ErrorKind::QueueFull { .. } => return,
            // A request within so short a wait may have no answer on a busy machine.
            kind => assert!(matches!(kind, ErrorKind::WaitTimeout | ErrorKind::Outage), "{kind:?}"),
        }
    }
}

/// Waits until so many callers of all processes have a place in the store's queue.
pub(crate) async fn until_in_line(store: &str, key: &'static str, places: u64) {
    let other = stranger(store);
    let waiters = async || other.lock(key).backend(store).holders().await.unwrap().waiters;
    wait_until("all have a place", async || waiters().await == Some(places)).await.unwrap();
}

/// Bounds a future that would never end if there were a fault.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("an end")
}
