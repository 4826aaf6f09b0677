//! Shared parts of the tests: a world for each test, a store that misbehaves on demand, and a manual clock.

mod faulty;
mod line;
mod steps;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use dlock_memory::Memory;
use dlock_runtime::{Clock, Defaults, Event, Guard, Held, Key, Label, Lock, LockKey, Observer, Registry, Result, Wait};
use futures::future::LocalBoxFuture;
use tokio::task::JoinHandle;

pub(crate) use faulty::{Faulty, Offers};
pub(crate) use line::Line;
pub(crate) use steps::{Op, Step};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// The longest that anything here may take in real time; only a hang comes near it, also on a machine that is very busy.
const HANG: Duration = Duration::from_secs(240);

/// One registry with one store, named `m`, on one clock.
pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) memory: Memory,
    pub(crate) store: Faulty,
    pub(crate) registry: Registry,
    pub(crate) events: Events,
}

impl World {
    /// On a clock that only the test moves.
    pub(crate) fn new() -> Self {
        Self::on(&Clock::manual())
    }

    pub(crate) fn on(clock: &Clock) -> Self {
        Self::with(clock, |_| {})
    }

    pub(crate) fn with(clock: &Clock, change: impl FnOnce(&mut Offers)) -> Self {
        end_if_it_hangs();
        let memory = Memory::with_clock(clock);
        let store = Faulty::around(&memory, clock, change);
        let registry = Registry::with_clock(clock);
        registry.install("m", store.clone()).unwrap();
        registry.set_default("m").unwrap();
        let events = Events::default();
        registry.observe(events.clone());
        Self { clock: clock.clone(), memory, store, registry, events }
    }

    pub(crate) fn configure(self, change: impl FnOnce(&mut Defaults)) -> Self {
        self.registry.configure(change).unwrap();
        self
    }

    #[track_caller]
    pub(crate) fn lock(&self, key: &'static str) -> Lock {
        self.registry.lock(key)
    }

    /// Lets time pass in small steps, and everybody act in between.
    pub(crate) async fn pass(&self, time: Duration) {
        let step = (time / 60).max(MS);
        let mut left = time;
        while !left.is_zero() {
            let now = step.min(left);
            self.clock.advance(now);
            left -= now;
            calm().await;
        }
    }

    /// Lets time pass until `future` is ready.
    pub(crate) async fn pass_until<T>(&self, step: Duration, future: impl Future<Output = T>) -> T {
        let pass = async {
            loop {
                calm().await;
                self.clock.advance(step);
            }
        };
        tokio::select! {
            biased;
            output = future => output,
            () = pass => unreachable!("time goes on for ever"),
        }
    }

    /// Waits until nothing is left in the store; without any passing of time.
    pub(crate) async fn empty(&self) {
        until("the store is empty", || self.memory.is_empty()).await;
    }
}

/// One has the lock, and another one waits for it.
pub(crate) async fn held_and_awaited(held: Lock, awaited: Lock) -> (Guard, JoinHandle<Result<Guard>>) {
    let held = held.acquire().await.unwrap();
    let next = tokio::spawn(awaited.acquire());
    calm().await;
    (held, next)
}

/// Whether another caller can take the lock at once.
pub(crate) async fn is_free(world: &World, key: &'static str) -> bool {
    match world.lock(key).try_acquire().await {
        Ok(guard) => guard.release().await.is_ok(),
        Err(_) => false,
    }
}

/// Waits until another caller can take the lock. The store is told first that it is free, the callers of this process a moment later.
pub(crate) async fn freed(world: &World, key: &'static str) {
    for _ in 0..10_000 {
        if is_free(world, key).await {
            return;
        }
        calm().await;
    }
    panic!("{key} stays taken");
}

pub(crate) fn full(key: &'static str) -> LockKey {
    LockKey::new("default", Key::text(key)).unwrap()
}

/// Runs a test on a runtime of its own, which ends it if it hangs.
pub(crate) fn test(body: impl Future<Output = ()>) {
    run(Box::pin(body));
}

/// Not generic, so that the runtime is compiled once and not for each test.
fn run(body: LocalBoxFuture<'_, ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(unless_it_hangs(body));
}

pub(crate) async fn unless_it_hangs<T>(body: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, body).await.expect("the test hangs")
}

/// A test that blocks its own thread has no bound of a runtime: a broken engine would keep it for ever. The harness
/// names the tests that run for long.
fn end_if_it_hangs() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static WATCHED: LazyLock<()> = LazyLock::new(|| {
        std::thread::spawn(|| {
            let mut seen = 0;
            while BEGUN.load(Ordering::SeqCst) != seen {
                seen = BEGUN.load(Ordering::SeqCst);
                std::thread::sleep(2 * HANG);
            }
            eprintln!("a test of the engine hangs");
            std::process::exit(101);
        });
    });
    BEGUN.fetch_add(1, Ordering::SeqCst);
    LazyLock::force(&WATCHED);
}

/// Waits until a condition holds, without letting any of the test's time pass.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < HANG / 2, "this never came: {what}");
        calm().await;
    }
}

/// Lets the tasks of this runtime and those of dlock's own thread act until they wait for something.
pub(crate) async fn calm() {
    // A store with a connection per hold is served on dlock's own thread: each round trip lets that thread's queue
    // pass.
    static PULSE: LazyLock<Registry> = LazyLock::new(|| {
        let clock = Clock::system();
        let registry = Registry::new();
        let pulse = Faulty::around(&Memory::with_clock(&clock), &clock, |profile| {
            profile.runs_on = dlock_contract::RunsOn::OwnThread
        });
        registry.install("pulse", pulse).unwrap();
        registry
    });
    for _ in 0..3 {
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        // On a busy machine it may not answer in time.
        while PULSE.lock("pulse").backend("pulse").holders().await.is_err() {}
    }
}

/// Lets three ttls of 6 s pass without giving up this thread: only another one's renewals can keep the hold.
pub(crate) fn block_for_three_ttls(world: &World, held: &Held) {
    for _ in 0..18 {
        world.clock.advance(SECOND);
        let begin = Instant::now();
        // Renewed every 2 s.
        while held.remaining() <= 3 * SECOND {
            held.check().unwrap();
            assert!(begin.elapsed() < HANG / 2, "no renewal came");
            std::thread::sleep(MS);
        }
    }
}

/// Polls once.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut context)
}

/// A limit that no test reaches by itself.
pub(crate) const LONG: Wait = Wait::UpTo(Duration::from_secs(3600));

/// Remembers every event with its label, but for those that each call and each renewal has.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<Mutex<Vec<(String, Event)>>>);

impl Events {
    /// The events so far, by their `Debug` names.
    pub(crate) fn names(&self) -> Vec<String> {
        let name = |event: &Event| format!("{event:?}").split([' ', '{', '(']).next().unwrap_or_default().to_owned();
        self.0.lock().unwrap().iter().map(|(_, event)| name(event)).collect()
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.names().iter().filter(|seen| *seen == name).count()
    }

    pub(crate) fn all(&self) -> Vec<(String, Event)> {
        self.0.lock().unwrap().clone()
    }

    /// Waits for an event of another thread.
    pub(crate) async fn expect(&self, name: &str, count: usize) {
        until(&format!("{count} x {name}"), || self.count(name) >= count).await;
        assert_eq!(self.count(name), count, "{name} in {:?}", self.names());
    }
}

impl Observer for Events {
    fn on_event(&self, label: &Label, event: &Event) {
        if !matches!(
            event,
            Event::Asked { .. } | Event::Renewed { .. } | Event::Succeeded { .. } | Event::Deadlock { .. }
        ) {
            self.0.lock().unwrap().push((format!("{label:?}"), event.clone()));
        }
    }
}
