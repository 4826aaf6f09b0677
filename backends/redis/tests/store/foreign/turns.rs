//! Turns with foreign clients that poll: a queue of dlock leaves the lock free for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dlock::{Clock, Registry, Wait};
use dlock_contract::{Attempt, Backend, Released};
use dlock_testkit::holds::until;
use dlock_testkit::wait_until;
use redis::Script;

use super::bench::{Bench, LONG, MS, SECOND};

/// How often redsync tries before it gives up.
const TRIES: u32 = 32;

/// A foreign client that asks as redsync does: it is not notified of a release, and has no place in a queue.
struct Stranger {
    name: String,
    raw: redis::Connection,
}

impl Stranger {
    fn new(bench: &Bench) -> Self {
        Self { name: bench.name.clone(), raw: bench.raw() }
    }

    fn tries(&mut self) -> bool {
        let mut set = redis::cmd("SET");
        set.arg(&self.name).arg("Zm9yZWlnbg==").arg("NX").arg("PX").arg(8000).query(&mut self.raw).unwrap()
    }

    /// Gives up where redsync does.
    fn locks(&mut self) -> bool {
        (0..TRIES).any(|_| {
            let done = self.tries();
            if !done {
                std::thread::sleep(fastrand::u32(50..250) * MS);
            }
            done
        })
    }

    fn unlocks(&mut self) {
        let script = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0";
        let freed: i64 = Script::new(script).key(&self.name).arg("Zm9yZWlnbg==").invoke(&mut self.raw).unwrap();
        assert_eq!(freed, 1, "somebody else took what was held");
    }
}

/// Tasks that never leave the queue empty.
struct Crowd {
    over: Arc<AtomicBool>,
    holds: Arc<AtomicU32>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Crowd {
    fn begin(bench: &Bench, registries: &[Registry], fair: bool, hold: Duration) -> Self {
        let (over, holds) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let tasks = registries.iter().map(|registry| {
            let (registry, key, over, holds) = (registry.clone(), bench.text(), over.clone(), holds.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let lock = registry.lock(key.clone()).ttl(LONG).wait(Wait::UpTo(2 * LONG)).fair(fair);
                    let guard = lock.acquire().await.unwrap();
                    tokio::time::sleep(hold).await;
                    guard.release().await.unwrap();
                    holds.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        Self { tasks: tasks.collect(), over, holds }
    }

    async fn end(self) -> u32 {
        self.over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.holds.load(Ordering::Relaxed)
    }
}

/// A foreign client gets the lock again and again within its tries, while dlock's callers hand it on among themselves.
async fn both_get_their_turns(bench: &Bench, registries: &[Registry], fair: bool, hold: Duration) {
    let mut stranger = Stranger::new(bench);
    assert!(stranger.tries());
    let crowd = Crowd::begin(bench, registries, fair, hold);
    wait_until("a queue forms", async || bench.keys().len() > 1).await.unwrap();
    let theirs = tokio::task::spawn_blocking(move || {
        stranger.unlocks();
        let end = Instant::now() + 5 * SECOND;
        let mut holds = 0;
        while Instant::now() < end {
            std::thread::sleep(10 * MS);
            assert!(stranger.locks(), "starved after {holds} holds");
            std::thread::sleep(hold);
            stranger.unlocks();
            holds += 1;
        }
        holds
    });
    let theirs = theirs.await;
    let ours = crowd.end().await;
    let theirs = theirs.unwrap();
    // On a busy machine both sides do little. What each of them is owed is asserted on the account itself (`account`).
    assert!(theirs >= 5 && ours >= 5, "ours had {ours}, the stranger {theirs}");
    bench.empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_polling_foreign_client_gets_its_turns_beside_many_tasks_of_one_process() {
    let bench = Bench::new();
    let registry = bench.registry("keys=literal").await;
    both_get_their_turns(&bench, &[registry.clone(), registry.clone(), registry.clone(), registry], false, 3 * MS)
        .await;
}

/// Then each turn of dlock is one hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_polling_foreign_client_gets_its_turns_beside_tasks_that_hold_longer() {
    let bench = Bench::new();
    let registry = bench.registry("keys=literal").await;
    both_get_their_turns(&bench, &[registry.clone(), registry.clone(), registry.clone(), registry], false, 30 * MS)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_polling_foreign_client_gets_its_turns_beside_many_processes() {
    let bench = Bench::new();
    let mut registries = Vec::new();
    for _ in 0..4 {
        registries.push(bench.registry("keys=literal").await);
    }
    both_get_their_turns(&bench, &registries, false, 3 * MS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_polling_foreign_client_gets_its_turns_beside_fair_waiters() {
    let bench = Bench::new();
    let registry = bench.registry("keys=literal").await;
    both_get_their_turns(
        &bench,
        &[registry.clone(), registry.clone(), bench.registry("keys=literal").await],
        true,
        3 * MS,
    )
    .await;
}

/// The head of a queue is killed, or stands still, while a foreign client has the lock at each look. Another waiter looks
/// in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_head_of_the_queue_does_not_keep_the_others_from_looking() {
    for is_killed in [true, false] {
        let bench = Bench::new();
        let mut stranger = Stranger::new(&bench);
        let () = redis::cmd("SET").arg(&bench.name).arg("Zm9yZWlnbg==").query(&mut bench.raw()).unwrap();
        let () = redis::cmd("PEXPIRE").arg(&bench.name).arg(600_000).query(&mut bench.raw()).unwrap();
        let (head, next) = (bench.literal().await, bench.literal().await);
        let [first, second] = [bench.claim(LONG), bench.claim(LONG)];
        assert!(matches!(head.try_acquire(&first, until()).await.unwrap(), Attempt::Contended(_)));
        if is_killed {
            // It leaves its place, and nobody listens there any more.
            head.close().await;
        }
        let asks_soon = async || {
            let sent = Clock::system().now();
            match next.try_acquire(&second, until()).await.unwrap() {
                Attempt::Contended(wake) => wake.ask_by.unwrap().since(sent) < SECOND / 2,
                attempt => panic!("{attempt:?}"),
            }
        };
        wait_until("the second waiter looks for both", asks_soon).await.unwrap();
        stranger.unlocks();
        let taken = async || match next.try_acquire(&second, until()).await.unwrap() {
            Attempt::Acquired(hold) => next.release(&hold).await.unwrap() == Released::Released,
            _ => false,
        };
        wait_until("the second waiter has the lock", taken).await.unwrap();
        if is_killed { &next } else { &head }.abandon(&first).await.unwrap();
        bench.empty().await;
    }
}

/// Eight strangers that hold long leave the name free for some milliseconds at a time. Ours find one of these moments
/// soon after each turn of theirs: a line that looked the more seldom the longer it had waited got nothing at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_not_starved_by_foreign_clients_that_hold_long() {
    let bench = Bench::new();
    let registry = bench.registry("keys=literal").await;
    let end = Instant::now() + 10 * SECOND;
    let strangers: Vec<_> = (0..8)
        .map(|_| {
            let mut stranger = Stranger::new(&bench);
            tokio::task::spawn_blocking(move || {
                let mut holds = 0;
                while Instant::now() < end {
                    std::thread::sleep(10 * MS);
                    if stranger.locks() {
                        std::thread::sleep(200 * MS);
                        stranger.unlocks();
                        holds += 1;
                    }
                }
                holds
            })
        })
        .collect();
    tokio::time::sleep(SECOND).await;
    let crowd = Crowd::begin(&bench, &[registry.clone(), registry.clone(), registry], false, 3 * MS);
    let mut theirs = 0;
    tokio::time::sleep_until(end.into()).await;
    let ours = crowd.end().await;
    for stranger in strangers {
        theirs += stranger.await.unwrap();
    }
    // Each side has the lock for about half of the time: about fifteen turns of dlock, with fifty holds each.
    assert!(ours > 100 && theirs > 10, "ours had {ours}, the strangers {theirs}");
    bench.empty().await;
}

/// How many commands of each name the server has run, in scripts too, while ten hand-overs went from one to the other. And the
/// time from the opening of the stores.
async fn commands_of_hand_overs(query: &str) -> (BTreeMap<String, u64>, Duration) {
    let mut bench = Bench::new();
    let server = dlock_testkit::servers::Instance::start(dlock_testkit::servers::Redis::default()).unwrap();
    bench.url = server.url();
    let begin = Instant::now();
    let registries = [bench.registry(query).await, bench.registry(query).await];
    let lock = |n: usize| registries[n % 2].lock(bench.text()).ttl(LONG).wait(Wait::UpTo(LONG)).fair(true).acquire();
    let mut held = lock(0).await.unwrap();
    // The connections for the first waiter are open by now.
    for warm in [true, false] {
        let () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut bench.raw()).unwrap();
        for n in 1..=(if warm { 2 } else { 10 }) {
            let next = tokio::spawn(lock(n));
            tokio::time::sleep(10 * MS).await;
            held.release().await.unwrap();
            held = next.await.unwrap().unwrap();
        }
    }
    let info: String = redis::cmd("INFO").arg("commandstats").query(&mut bench.raw()).unwrap();
    let took = begin.elapsed();
    held.release().await.unwrap();
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    // Of the look whether the server lives there may be one more.
    let is_counted = |name: &str| !matches!(name, "role" | "info" | "config|resetstat");
    (info.lines().filter_map(line).filter(|(name, _)| is_counted(name)).collect(), took)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_met_no_foreign_client_runs_the_commands_of_a_plain_queue() {
    let mut last = None;
    for _ in 0..100 {
        let (plain, _) = commands_of_hand_overs("eviction=allow").await;
        let (literal, took) = commands_of_hand_overs("keys=literal").await;
        // On a busy machine a check for foreign clients may be due meanwhile, or a check finds an empty queue.
        let is_late = took > 3 * SECOND / 10 || plain["publish"] != 10 || literal.get("publish") != Some(&10);
        // Or a script is sent once more. What is a part of each hand-over is there in every round.
        if !is_late && literal == plain {
            return;
        }
        if !is_late {
            last = Some((literal, plain));
        }
    }
    let last = last.expect("too slow each time: nothing is proven");
    panic!("with other commands each time, the last time {last:?}");
}

/// Checks for foreign clients do not count as a foreign client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_meets_no_foreign_client_leaves_the_lock_free_seldom() {
    let bench = Bench::new();
    let registries = [bench.registry("keys=literal").await, bench.registry("keys=literal").await];
    let [one, two] = &registries;
    let crowd = Crowd::begin(&bench, &[one.clone(), two.clone(), one.clone(), two.clone()], false, 3 * MS);
    let (mut raw, mut turns) = (bench.raw(), std::collections::BTreeSet::new());
    let end = Instant::now() + 5 * SECOND;
    while Instant::now() < end {
        let noted: Option<String> =
            redis::cmd("GET").arg(crate::names::memory_of_foreign_clients(&bench.name)).query(&mut raw).unwrap();
        turns.extend(noted.map(|noted| noted.split(' ').next().unwrap().to_owned()));
        tokio::time::sleep(10 * MS).await;
    }
    crowd.end().await;
    // After 300 ms, 900 ms, 2100 ms, and then one every 2 s, for all processes together. One that comes a little earlier than
    // another process's is refused, and that process asks later again.
    assert!((3..=5).contains(&turns.len()), "{turns:?}");
    bench.empty().await;
}
