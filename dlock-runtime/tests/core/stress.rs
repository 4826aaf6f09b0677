//! Everything at once, on the machine's clock, to find faults that no single test covers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dlock_memory::Memory;
use dlock_runtime::{Clock, Cohort, ErrorKind, Held, Registry, Renew, Wait};

use crate::support::{MS, unless_it_hangs, until};

const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const TASKS: u64 = 64;

/// The resource that a lock protects: an increment that is not atomic as a whole, and the highest token seen.
#[derive(Default)]
struct Protected {
    value: AtomicU64,
    entered: AtomicU64,
    token: AtomicU64,
}

impl Protected {
    /// Counts only work that was done while the guard said that the lock was held.
    async fn enter(&self, held: &Held, pause: Duration) {
        let token = held.fence().unwrap().get();
        let before = self.token.swap(token, Ordering::SeqCst);
        assert!(token > before, "token {token} after {before}");
        let seen = self.value.load(Ordering::SeqCst);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        // An increment too many would show two in here at once.
        self.value.store(seen + 1, Ordering::SeqCst);
        self.entered.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn many_tasks_that_fail_in_every_way_never_meet() {
    let seed = std::env::var("DLOCK_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(fresh_seed);
    println!("DLOCK_TEST_SEED={seed}");
    let memory = Memory::with_clock(&Clock::system());
    let registry = Registry::new();
    registry.install("m", memory.clone()).unwrap();
    registry.set_default("m").unwrap();
    let protected: Arc<[Protected; 8]> = Arc::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
    runtime.block_on(async {
        let until = Instant::now() + Duration::from_secs(3);
        let tasks: Vec<_> = (0..TASKS)
            .map(|id| {
                let (registry, protected) = (registry.clone(), protected.clone());
                tokio::spawn(worker(registry, protected, Random(seed ^ (id << 32) | 1), until))
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    for (key, protected) in KEYS.iter().zip(protected.iter()) {
        let (value, entered) = (protected.value.load(Ordering::SeqCst), protected.entered.load(Ordering::SeqCst));
        assert_eq!(value, entered, "two were inside {key} at once");
        assert!(entered > 0, "nobody ever got {key}");
    }
    runtime.block_on(unless_it_hangs(async {
        until("the store is empty", || memory.is_empty()).await;
        // A local queue without work lets others ask, a moment after the store is empty.
        for key in KEYS {
            registry.lock(key).wait(Wait::Forever).acquire().await.unwrap().release().await.unwrap();
        }
        // Something that has ended and is still waited for would be waited for as long.
        let report = registry.shutdown(Duration::MAX).await;
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
    }));
}

async fn worker(registry: Registry, protected: Arc<[Protected; 8]>, mut random: Random, until: Instant) {
    // However late this thread begins, each key is entered.
    let is_idle = |one: &Protected| one.entered.load(Ordering::SeqCst) == 0;
    while Instant::now() < until || protected.iter().any(is_idle) {
        let key = random.below(8) as usize;
        let ttl = Duration::from_millis(60_000 + random.below(1000));
        let renew = if random.below(4) == 0 { Renew::Every(20 * MS) } else { Renew::Auto };
        let wait = match random.below(4) {
            0 => Wait::None,
            1 => Wait::Forever,
            _ => Wait::UpTo(Duration::from_millis(random.below(50))),
        };
        let lock = registry.lock(KEYS[key]).ttl(ttl).renew(renew).wait(wait);
        // Some stand in the store's line themselves, and some have a neighbour's hold passed on to them.
        let lock = match random.below(8) {
            0 => lock.fair(true),
            1 => lock.attempts(1000),
            2 | 3 => lock.cohort(Some(Cohort { passes: 8, span: Some(200 * MS) })),
            _ => lock,
        };
        let pause = Duration::from_micros(random.below(3) * 400);
        let (mode, patience) = (random.below(8), Duration::from_micros(random.below(20_000)));
        let (inside, outside) = (protected.clone(), tokio::time::sleep(patience));
        let body = move |held: Held| async move {
            inside[key].enter(&held, pause).await;
            if mode == 0 {
                // Without the panic hook, because it would print a thousand backtraces.
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        };
        match mode {
            // A caller that goes away at any point.
            1 | 2 => {
                let counted = protected.clone();
                let cancelled = registry.lock(KEYS[key]).ttl(ttl).wait(wait).run(move |held| async move {
                    counted[key].enter(&held, Duration::ZERO).await;
                    tokio::time::sleep(pause).await;
                });
                tokio::select! {
                    _ = cancelled => {}
                    () = outside => {}
                }
            }
            // A guard that is dropped, or that is released by a task of its own.
            3 | 4 => {
                if let Ok(guard) = lock.acquire().await {
                    protected[key].enter(&guard, pause).await;
                    if mode == 3 {
                        drop(guard);
                    } else {
                        tokio::spawn(guard.release());
                    }
                }
            }
            _ => {
                if let Ok(Err(error)) = tokio::spawn(lock.run(body)).await {
                    // A short wait ends with an outage where the neighbour that asks has no answer in time.
                    let may_be_late = matches!(wait, Wait::UpTo(_)) && *error.kind() == ErrorKind::Outage;
                    let expected = may_be_late || matches!(error.kind(), ErrorKind::Busy | ErrorKind::WaitTimeout);
                    assert!(expected, "{error}");
                }
            }
        }
    }
}

/// A generator of our own, so that a seed gives the same choices in every release of any library.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

fn fresh_seed() -> u64 {
    u64::from(std::process::id()) << 20 ^ Clock::system().wall_ms()
}
