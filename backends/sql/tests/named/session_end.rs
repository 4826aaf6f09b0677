//! The session of a holder ends before its ttl: the server frees the lock at once, and the holder must hear of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dlock::{ErrorKind, Key, Lock, LockKey, LossCause, Registry};
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::take;
use dlock_testkit::{Proxy, a_closed_store_opens_nothing, lateness, wait_until};

use super::half_broken::HalfBroken;
use crate::named_kit::{Database, open_at, session_of, session_of_name};

named_cases! {
    a_reset_connection_is_told_within_the_window
    a_killed_session_is_told_within_the_window
    a_body_whose_connection_was_reset_is_never_ok
    a_body_whose_session_was_killed_is_never_ok
    a_body_that_ends_in_a_silent_network_is_never_ok
    two_callers_believe_that_they_hold_for_the_window_at_most
    bodies_that_are_ok_were_never_inside_together
    many_holds_are_watched_over_one_connection
    a_connection_that_breaks_on_our_side_alone_is_seen_by_the_monitor
    five_hundred_free_locks_need_ten_connections
    a_store_that_was_closed_opens_nothing
}

/// Long enough that the renewals tell of nothing here: they come every three seconds.
const TTL: Duration = Duration::from_secs(9);
/// The promise is 300 ms and a round trip; the rest is for a busy machine.
const WINDOW: Duration = Duration::from_millis(1500);

async fn a_store_that_was_closed_opens_nothing(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    a_closed_store_opens_nothing(&open_at(&url).await, &[proxy], &database.claim("a", TTL)).await;
}

/// Asserts that the window since then is not over, but for what this machine is late.
#[track_caller]
fn assert_in_window(since: Instant, what: &str) {
    lateness::assert_within(WINDOW, since, what);
}

/// A process of its own, as far as the server can tell, behind a proxy.
struct Process {
    registry: Registry,
    proxy: Proxy,
    namespace: String,
}

impl Process {
    async fn start(database: &Database) -> Self {
        lateness::watch();
        let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
        let registry = Registry::new();
        registry.install("sql", open_at(&url).await).unwrap();
        registry.set_default("sql").unwrap();
        let namespace = database.name.clone();
        registry.configure(|defaults| defaults.namespace = namespace.clone()).unwrap();
        Self { registry, proxy, namespace }
    }

    fn lock(&self) -> Lock {
        self.registry.lock("a").ttl(TTL)
    }

    /// Waits until the monitor has asked about a hold that is new. No renewal is due for three seconds, so nothing else is
    /// sent.
    async fn until_watched(&self) {
        let before = self.proxy.sent();
        wait_until("the monitor asks", async || self.proxy.sent() > before).await.unwrap();
    }

    fn key(&self) -> LockKey {
        LockKey::new(&self.namespace, Key::text("a")).unwrap()
    }

    async fn kill(&self, database: &Database) {
        database.kill(session_of_name(database, self.key().as_str()).await.unwrap()).await;
    }

    /// Waits until the server has ended the session of the hold. Before that, the lock was kept to its end.
    async fn until_ended(&self, database: &Database) {
        let is_free = async || session_of_name(database, self.key().as_str()).await.is_none();
        wait_until("the session ends", is_free).await.unwrap();
    }
}

async fn a_reset_connection_is_told_within_the_window(database: Database) {
    let process = Process::start(&database).await;
    for age in [10, 150, 600] {
        let guard = process.lock().acquire().await.unwrap();
        tokio::time::sleep(Duration::from_millis(age)).await;
        let cut = Instant::now();
        process.proxy.cut();
        assert!(guard.lost().await.is_lost());
        assert_in_window(cut, &format!("told of the end of a hold of {age} ms"));
    }
}

async fn a_killed_session_is_told_within_the_window(database: Database) {
    let process = Process::start(&database).await;
    let guard = process.lock().acquire().await.unwrap();
    process.until_watched().await;
    process.kill(&database).await;
    let killed = Instant::now();
    assert!(guard.lost().await.is_lost());
    assert_in_window(killed, "told");
}

async fn a_body_whose_connection_was_reset_is_never_ok(database: Database) {
    let process = Process::start(&database).await;
    for rest in [0, 800] {
        let done = process.lock().run(|_| async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            process.proxy.cut();
            process.until_ended(&database).await;
            tokio::time::sleep(Duration::from_millis(rest)).await;
        });
        assert!(done.await.unwrap_err().is_lost(), "{rest} ms after the reset");
    }
    process.lock().run(|_| async {}).await.unwrap();
}

async fn a_body_whose_session_was_killed_is_never_ok(database: Database) {
    let process = Process::start(&database).await;
    for rest in [0, 800] {
        let done = process.lock().run(|_| async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            process.kill(&database).await;
            process.until_ended(&database).await;
            tokio::time::sleep(Duration::from_millis(rest)).await;
        });
        assert!(done.await.unwrap_err().is_lost(), "{rest} ms after the KILL");
    }
    process.lock().run(|_| async {}).await.unwrap();
}

async fn a_body_that_ends_in_a_silent_network_is_never_ok(database: Database) {
    let process = Process::start(&database).await;
    let done = process.lock().run(|_| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        process.proxy.set(dlock_testkit::Mode::BLACKHOLE);
    });
    assert!(done.await.unwrap_err().is_lost(), "nobody knows whether the lock was ours to the end");
}

async fn two_callers_believe_that_they_hold_for_the_window_at_most(database: Database) {
    let (one, other) = (Process::start(&database).await, Process::start(&database).await);
    let guard = one.lock().acquire().await.unwrap();
    one.until_watched().await;
    one.proxy.cut();
    let next = other.lock().acquire().await.unwrap();
    let both = Instant::now();
    while guard.check().is_ok() {
        assert_in_window(both, "two believe");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    eprintln!("both believed for {:?}", both.elapsed());
    next.release().await.unwrap();
}

/// Two processes, whose connections are cut in turns. Two bodies may meet then, but not two that end with `Ok`.
async fn bodies_that_are_ok_were_never_inside_together(database: Database) {
    let processes = Arc::new([Process::start(&database).await, Process::start(&database).await]);
    let (length, longest) = (Duration::from_secs(6), Duration::from_secs(60));
    let (began, is_over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let mut workers = Vec::new();
    for number in 0..6 {
        let (processes, is_over, counts) = (processes.clone(), is_over.clone(), counts.clone());
        workers.push(tokio::spawn(async move {
            let mut good = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                let body = |_| async {
                    let began = Instant::now();
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..120))).await;
                    (began, Instant::now())
                };
                let span = processes[number % 2].lock().run(body).await;
                counts[usize::from(span.is_err())].fetch_add(1, Ordering::SeqCst);
                good.extend(span);
            }
            good
        }));
    }
    // On a busy machine little happens in that time. Then it goes on until enough has, but not for ever.
    let counted = || [0, 1].map(|at: usize| counts[at].load(Ordering::SeqCst));
    let is_enough = || counted()[0] > 10 && counted()[1] > 0;
    for round in 0.. {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(100..300))).await;
        if began.elapsed() > longest || (began.elapsed() > length && is_enough()) {
            break;
        }
        processes[round % 2].proxy.cut();
    }
    is_over.store(true, Ordering::SeqCst);
    let mut good = Vec::new();
    for worker in workers {
        good.extend(worker.await.unwrap());
    }
    let bad = counted()[1];
    good.sort_unstable();
    for pair in good.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two bodies were inside together and both ended with Ok: {pair:?}");
    }
    assert!(good.len() > 10 && bad > 0, "{} were Ok and {bad} were not: nothing is proven", good.len());
    eprintln!("{} bodies were Ok, {bad} calls failed", good.len());
}

async fn many_holds_are_watched_over_one_connection(database: Database) {
    let process = Process::start(&database).await;
    let before = process.proxy.connections();
    let mut guards = Vec::new();
    for number in 0..40_u32 {
        guards.push(process.registry.lock(dlock::Key::new().value(&number)).ttl(TTL).acquire().await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert!(guards.iter().all(|guard| guard.check().is_ok()));
    // One for all. On a busy machine the monitor opens another one when an answer is late.
    let connections = process.proxy.connections();
    assert!(connections < before + 10, "{connections} connections for 40 holds");
    let cut = Instant::now();
    process.proxy.cut();
    for guard in &guards {
        assert!(guard.lost().await.is_lost());
    }
    assert_in_window(cut, "the last one was told");
}

async fn a_connection_that_breaks_on_our_side_alone_is_seen_by_the_monitor(database: Database) {
    let relay = HalfBroken::start(database.addr()).await;
    let store = open_at(&database.url_at(relay.port)).await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    relay.break_off(relay.lines() - 1);
    assert!(session_of(&database, "a").await.is_some(), "the server was told of the end: nothing is proven");
    // The session cannot answer, but the server still lists it as the holder: the work was protected.
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(session_of(&database, "a").await, None, "the server keeps the lock of a session that has ended");
}

async fn five_hundred_free_locks_need_ten_connections(database: Database) {
    let process = Process::start(&database).await;
    let mut guards = Vec::new();
    for number in 0..500_u32 {
        let key = dlock::Key::new().value(&number);
        guards.push(process.registry.lock(key).ttl(Duration::from_secs(3600)).acquire().await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(guards.iter().all(|guard| guard.check().is_ok()));
    assert!(process.proxy.connections() <= 10, "{} connections", process.proxy.connections());
    for guard in guards {
        // A session that is late to answer, as on a busy machine, leaves it unconfirmed whether the lock was held to the end.
        if let Err(error) = guard.release().await {
            assert_eq!(*error.kind(), ErrorKind::Lost(LossCause::Unconfirmed), "{error}");
        }
    }
}
