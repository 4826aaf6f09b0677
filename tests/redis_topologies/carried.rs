//! A failover while releases ask for the next callers of their processes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use dlock::{Clock, Registry, Wait};
use dlock_testkit::servers::{Instance, RedisSentinels};

use crate::sentinel::{DOWN_AFTER_MS, fail_over};
use crate::{MS, SECOND, blocking};

/// So many grants before the failover, and so many after it.
const ENOUGH: usize = 200;

/// So many requests each server remembers.
const KEPT: &str = "2000";

/// One grant, and the time for which its caller was certain of it, in nanoseconds.
#[derive(Clone, Debug)]
struct Held {
    token: u64,
    from: u64,
    to: u64,
}

type History = Arc<Mutex<Vec<Held>>>;

/// Takes the lock again and again. It reads the clock, asks its guard, and notes the time only if that said yes.
async fn work(registry: Registry, history: History, stop: Arc<AtomicBool>) {
    let clock = Clock::system();
    while !stop.load(Ordering::SeqCst) {
        let lock = registry.lock("k").ttl(2 * SECOND).wait(Wait::UpTo(10 * SECOND));
        let Ok(guard) = lock.acquire().await else {
            tokio::time::sleep(20 * MS).await;
            continue;
        };
        let from = clock.now().as_nanos();
        let mut held = guard.check().is_ok().then(|| Held { token: guard.fence().unwrap().get(), from, to: from });
        for _ in 0..fastrand::u8(0..4) {
            tokio::time::sleep(MS).await;
            let now = clock.now().as_nanos();
            match &mut held {
                Some(held) if guard.check().is_ok() => held.to = now,
                _ => break,
            }
        }
        history.lock().unwrap().extend(held);
        // It may be lost by now, or nobody may answer.
        let _ = guard.release().await;
    }
}

/// Has any of the server's last requests released a lock and asked for it? No other script takes six values beside a name.
fn is_asked_with_releases(server: &Instance) -> bool {
    type Entry = (u64, u64, u64, Vec<Vec<u8>>, String, String);
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let log: Vec<Entry> = redis::cmd("SLOWLOG").arg("GET").arg(KEPT).query(&mut connection).unwrap();
    log.iter().any(|(_, _, _, words, _, _)| words[0] == b"EVALSHA" && words.len() == 4 + 6)
}

/// Two processes, a few tasks each. The replica knows less than the primary did; the guard keeps what it grants apart from
/// what the old one has granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_believes_beside_another_over_a_failover() {
    let options = ["--slowlog-log-slower-than", "0", "--slowlog-max-len", KEPT];
    let set = blocking(move || RedisSentinels::start(1, DOWN_AFTER_MS, false, &options)).await.unwrap();
    let (history, stop) = (History::default(), Arc::new(AtomicBool::new(false)));
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let registry = Registry::new();
        registry.connect("redis", &set.url()).await.unwrap();
        registry.set_default("redis").unwrap();
        tasks.extend((0..4).map(|_| tokio::spawn(work(registry.clone(), history.clone(), stop.clone()))));
    }
    let grants = |least: usize| {
        let history = history.clone();
        async move {
            let end = tokio::time::Instant::now() + 60 * SECOND;
            while history.lock().unwrap().len() < least {
                assert!(tokio::time::Instant::now() < end, "no {least} grants came");
                tokio::time::sleep(5 * MS).await;
            }
        }
    };
    grants(ENOUGH).await;
    let set = blocking(move || {
        assert!(is_asked_with_releases(set.primary().unwrap()), "before the failover");
        set
    })
    .await;
    let set = fail_over(set).await;
    let before = history.lock().unwrap().len();
    grants(before + ENOUGH).await;
    let set = blocking(move || {
        assert!(is_asked_with_releases(set.primary().unwrap()), "after the failover");
        set
    })
    .await;
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    // The server ends here, and not before those who use it.
    drop(set);
    let mut history = std::mem::take(&mut *history.lock().unwrap());
    history.sort_by_key(|held| held.from);
    for pair in history.windows(2) {
        let [one, next] = pair else { continue };
        assert!(one.to <= next.from, "two held at once: {one:?} and {next:?}");
        assert!(one.token < next.token, "a later grant has no higher token: {one:?} and {next:?}");
    }
}
