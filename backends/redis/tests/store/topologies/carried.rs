//! A failover while releases ask for the next callers of their processes.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock::{Clock, Registry, Wait};
use dlock_testkit::servers::{Instance, RedisSentinels};
use dlock_testkit::wait_until;

use super::sentinel::{DOWN_AFTER_MS, fail_over};
use super::{MS, SECOND, blocking};

/// So many grants before the failover, and so many after it.
const ENOUGH: usize = 200;

/// Longer than a failover takes.
const TTL: Duration = Duration::from_secs(8);

/// So many requests each server remembers.
const KEPT: &str = "2000";

/// One grant, and the time for which its caller was certain of it, in nanoseconds.
#[derive(Clone, Debug)]
struct Held {
    token: u64,
    from: u64,
    to: u64,
}

/// The state that the workers share.
#[derive(Default)]
struct Run {
    history: Mutex<Vec<Held>>,
    /// How many grants have begun.
    begun: AtomicUsize,
    /// The holder keeps the lock for as long as it can.
    stay: AtomicBool,
    /// For how long the one who stays was certain, in nanoseconds.
    stayed: AtomicU64,
    stop: AtomicBool,
}

impl Run {
    fn grants(&self) -> usize {
        self.history.lock().unwrap().len()
    }

    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        wait_until(what, async || condition(self)).await.unwrap();
    }

    /// Takes the lock again and again. It reads the clock, asks its guard, and notes the time only if that said yes.
    async fn work(self: Arc<Self>, registry: Registry) {
        let clock = Clock::system();
        while !self.stop.load(Ordering::SeqCst) {
            let lock = registry.lock("k").ttl(TTL).wait(Wait::UpTo(10 * SECOND));
            let Ok(guard) = lock.acquire().await else {
                tokio::time::sleep(20 * MS).await;
                continue;
            };
            let from = clock.now().as_nanos();
            let mut held = Held { token: guard.fence().unwrap().get(), from, to: from };
            if guard.check().is_err() {
                continue;
            }
            self.begun.fetch_add(1, Ordering::SeqCst);
            let mut least = fastrand::u8(0..4);
            while least > 0 || self.stay.load(Ordering::SeqCst) {
                tokio::time::sleep(MS).await;
                let now = clock.now().as_nanos();
                if guard.check().is_err() {
                    break;
                }
                held.to = now;
                self.stayed.store(now - from, Ordering::SeqCst);
                least = least.saturating_sub(1);
            }
            self.history.lock().unwrap().push(held);
            // It may be lost by now, or nobody may answer.
            let _ = guard.release().await;
        }
    }
}

/// Has any of the server's last requests released a lock and asked for it? No other script takes six values beside a name.
fn is_asked_with_releases(server: &Instance) -> bool {
    type Entry = (u64, u64, u64, Vec<Vec<u8>>, String, String);
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let log: Vec<Entry> = redis::cmd("SLOWLOG").arg("GET").arg(KEPT).query(&mut connection).unwrap();
    log.iter().any(|(_, _, _, words, _, _)| words[0] == b"EVALSHA" && words.len() == 4 + 6)
}

/// Two processes, a few tasks each. The replica misses the last grants, and one of the holders believes in its hold for
/// longer than the failover takes: the guard keeps what the new primary grants apart from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_two_callers_believe_that_they_hold_over_a_failover() {
    let options = ["--slowlog-log-slower-than", "0", "--slowlog-max-len", KEPT];
    let set = blocking(move || RedisSentinels::start(1, 2 * DOWN_AFTER_MS, false, &options)).await.unwrap();
    let run = Arc::new(Run::default());
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let registry = Registry::new();
        registry.connect("redis", &set.url()).await.unwrap();
        registry.set_default("redis").unwrap();
        tasks.extend((0..4).map(|_| tokio::spawn(run.clone().work(registry.clone()))));
    }
    run.until("grants", |run| run.grants() > ENOUGH).await;
    let set = blocking(move || {
        assert!(is_asked_with_releases(&set.servers[0]), "before the failover");
        set.servers[0].ask("ACL SETUSER default -psync -sync").unwrap();
        set.servers[0].ask("CLIENT KILL TYPE replica").unwrap();
        set
    })
    .await;
    let known = run.grants();
    run.until("grants that the replica misses", |run| run.grants() > known + 20).await;
    run.stay.store(true, Ordering::SeqCst);
    // Longer than a grant that was never renewed.
    let renewed = |run: &Run| Duration::from_nanos(run.stayed.load(Ordering::SeqCst)) > SECOND * 3 / 2;
    run.until("a hold that is renewed", renewed).await;
    let begun = run.begun.load(Ordering::SeqCst);
    let set = fail_over(set).await;
    run.until("a grant after the failover", |run| run.begun.load(Ordering::SeqCst) > begun).await;
    // A worker that still believes in its hold writes that down.
    tokio::time::sleep(50 * MS).await;
    run.stay.store(false, Ordering::SeqCst);
    let before = run.grants();
    run.until("grants by the new primary", |run| run.grants() > before + ENOUGH).await;
    run.stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    blocking(move || assert!(is_asked_with_releases(set.primary().unwrap()), "after the failover")).await;
    let mut history = std::mem::take(&mut *run.history.lock().unwrap());
    history.sort_by_key(|held| held.from);
    for pair in history.windows(2) {
        let [one, next] = pair else { continue };
        assert!(one.to <= next.from, "two held at once: {one:?} and {next:?}");
        assert!(one.token < next.token, "a later grant has no higher token: {one:?} and {next:?}");
    }
}
