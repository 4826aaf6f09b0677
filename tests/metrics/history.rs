//! The counts are those of a history that the callers write.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dlock::metrics::Metrics;
use dlock::{Error, ErrorKind, Key, Registry, Wait};
use dlock_testkit::servers::{Instance, Redis};
use dlock_testkit::wait_until;

use crate::registry_of;
use crate::values::values;

/// The shortest ttl of the memory store is below it.
const SHORT: Duration = Duration::from_millis(20);

/// How the calls of one task have ended, by outcome, and how its holds have.
type History = BTreeMap<&'static str, u64>;

/// Some calls of one task that end in all ways.
async fn calls(registry: Registry, calls: u32) -> History {
    let mut history = History::new();
    let mut note = |outcome| *history.entry(outcome).or_default() += 1;
    for _ in 0..calls {
        let lock = || registry.lock(Key::text("k").value(&fastrand::u8(..4))).name("history");
        match fastrand::u32(..24) {
            // Rare, because each takes long.
            18 if fastrand::u32(..10) > 0 => {}
            0..6 => match lock().try_acquire().await {
                Ok(guard) => {
                    note("acquired");
                    guard.release().await.unwrap();
                }
                Err(error) => note(if *error.kind() == ErrorKind::Busy { "busy" } else { unreachable!("{error}") }),
            },
            6..12 => match lock().wait(Wait::UpTo(Duration::from_micros(fastrand::u64(..300)))).acquire().await {
                Ok(guard) => {
                    note("acquired");
                    drop(guard);
                }
                Err(error) if *error.kind() == ErrorKind::WaitTimeout => note("timed_out"),
                Err(error) => unreachable!("{error}"),
            },
            12..18 => {
                let call = lock().wait(Wait::Forever).acquire();
                match tokio::time::timeout(Duration::from_micros(fastrand::u64(..300)), call).await {
                    Ok(guard) => {
                        note("acquired");
                        drop(guard.unwrap());
                    }
                    Err(_) => note("given_up"),
                }
            }
            18 => {
                // Lost soon, as its body hears.
                let call = lock().wait(Wait::Forever).ttl(SHORT).max_hold(SHORT).run(async |held| {
                    held.lost().await;
                });
                note("acquired");
                let error = call.await.unwrap_err();
                assert!(error.is_lost(), "{error}");
                note("lost");
            }
            _ => {
                note("acquired");
                lock().wait(Wait::Forever).run(async |_| tokio::task::yield_now().await).await.unwrap();
            }
        }
    }
    history
}

/// The value of the label for a call that has failed.
fn outcome_of(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::WaitTimeout => "timed_out",
        kind => kind.as_str(),
    }
}

/// Calls over a store that fails for a while, until `stop`.
async fn calls_in_an_outage(
    registry: Registry,
    name: String,
    acquired: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> History {
    let mut history = History::new();
    let mut note = |outcome| *history.entry(outcome).or_default() += 1;
    while !stop.load(Ordering::SeqCst) {
        let lock = registry.lock(Key::text("k").value(&fastrand::u8(..4))).name(&name);
        match lock.wait(Wait::UpTo(Duration::from_millis(500))).ttl(TTL).acquire().await {
            Ok(guard) => {
                note("acquired");
                acquired.fetch_add(1, Ordering::SeqCst);
                match guard.release().await {
                    Ok(()) => {}
                    Err(error) if error.is_lost() => note("lost"),
                    Err(error) => unreachable!("{error}"),
                }
            }
            Err(error) => {
                note(outcome_of(&error));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
    history
}

const TTL: Duration = Duration::from_secs(2);

/// The variable that tells the other process where to take the lock.
const HOLDER: &str = "DLOCK_TEST_METRICS_HOLDER";

/// The other process: it takes a lock, says so, and is killed.
#[tokio::test]
async fn a_holder_in_another_process() {
    let Ok(url) = std::env::var(HOLDER) else { return };
    let registry = Registry::new();
    registry.connect("main", &url).await.unwrap();
    let _guard = registry.lock(Key::text("k").value(&0_u8)).wait(Wait::Forever).ttl(TTL).acquire().await.unwrap();
    println!("\nheld");
    tokio::time::sleep(Duration::from_secs(120)).await;
}

/// A process that is killed takes its own counts with it. Here all counts are those of one process that lives: neighbours
/// are killed while they hold its locks, its own holds are lost and broken, and its store goes away for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_counts_are_those_of_the_history() {
    let (values, registry) = (values(), registry_of("history"));
    let tasks = (0..32).map(|_| tokio::spawn(calls(registry.clone(), 3125)));
    let mut history = History::new();
    for task in tasks.collect::<Vec<_>>() {
        for (outcome, count) in task.await.unwrap() {
            *history.entry(outcome).or_default() += count;
        }
    }
    for _ in 0..50 {
        let lock = || registry.lock("broken").name("history");
        let guard = lock().acquire().await.unwrap();
        let id = lock().holders().await.unwrap().holders[0].id.unwrap();
        assert!(lock().break_hold(id).await.unwrap());
        assert!(guard.release().await.unwrap_err().is_lost());
        for outcome in ["acquired", "lost", "broken"] {
            *history.entry(outcome).or_default() += 1;
        }
    }
    let lock = "lock=history";
    let ended = async || values.gauge("dlock_held", &[lock]) == 0.0 && values.gauge("dlock_waiting", &[lock]) == 0.0;
    wait_until("all have ended", ended).await.unwrap();
    // The thread of the observers counts a loss after the end of the hold.
    let lost = async || values.count("dlock_losses_total", &[lock]) == history["lost"];
    wait_until("the losses of the history", lost).await.unwrap();
    let of = |outcome: &str| values.count("dlock_acquisitions_total", &[lock, &format!("outcome={outcome}")]);
    for outcome in ["acquired", "busy", "timed_out", "given_up"] {
        assert_eq!(of(outcome), history[outcome], "{outcome} in {history:?}");
    }
    // The others were lost by `max_hold`, or because a renewal of so short a lease came late.
    assert_eq!(values.count("dlock_losses_total", &[lock, "cause=broken"]), history["broken"]);
    assert_eq!(values.count("dlock_breaks_total", &["backend=history", "store=memory"]), history["broken"]);
    assert_eq!(values.times("dlock_hold_seconds", &[lock]).0, history["acquired"]);
    assert_eq!(values.times("dlock_acquisition_seconds", &[lock]).0, history["acquired"]);
    assert_eq!(registry.observer_trouble(), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_counts_are_those_of_the_history_over_an_outage_and_kills() {
    over_an_outage_and_kills("outage", 200).await;
}

mod thorough {
    /// Some 100,000 acquisitions.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn the_counts_are_those_of_a_long_history_over_an_outage_and_kills() {
        super::over_an_outage_and_kills("long outage", 33_000).await;
    }
}

/// With so many acquisitions after each kill, and after the outage.
async fn over_an_outage_and_kills(backend: &'static str, acquisitions: u64) {
    let (name, values) = (format!("history over {backend}"), values());
    let server = Arc::new(Instance::start(Redis::default()).unwrap());
    // Each loss and each outage of this run is wanted, and its end need not be waited for.
    let url = format!("{}?restart_guard=off", server.url());
    let registry = Registry::new();
    registry.observe(Metrics::new());
    registry.connect(backend, &url).await.unwrap();
    let (acquired, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let run = |_| tokio::spawn(calls_in_an_outage(registry.clone(), name.clone(), acquired.clone(), stop.clone()));
    let tasks: Vec<_> = (0..16).map(run).collect();
    let some_more = async |what: &str| {
        let before = acquired.load(Ordering::SeqCst);
        wait_until(what, async || acquired.load(Ordering::SeqCst) > before + acquisitions).await.unwrap();
    };
    for _ in 0..2 {
        let mut other = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "history::a_holder_in_another_process", "--nocapture"])
            .env(HOLDER, &url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
        let holds = tokio::task::spawn_blocking(move || lines.any(|line| line.unwrap() == "held")).await.unwrap();
        assert!(holds, "the other process has ended");
        other.kill().unwrap();
        other.wait().unwrap();
        some_more("calls after the kill").await;
    }
    let victim = registry.lock("victim").name(&name).ttl(TTL).acquire().await.unwrap();
    let blocking = async |work: fn(&Instance)| {
        let server = server.clone();
        tokio::task::spawn_blocking(move || work(&server)).await.unwrap();
    };
    blocking(|server| server.kill9().unwrap()).await;
    let (lock, of_backend) = (format!("lock={name}"), format!("backend={backend}"));
    let outages = || values.count("dlock_acquisitions_total", &[&lock, "outcome=outage"]);
    wait_until("calls fail", async || outages() > 100).await.unwrap();
    // The events of an answer from before may come later.
    wait_until("the store to be down", async || values.gauge("dlock_store_up", &[&of_backend]) == 0.0).await.unwrap();
    blocking(|server| server.restart().unwrap()).await;
    some_more("calls after the outage").await;
    wait_until("the loss", async || victim.check().is_err()).await.unwrap();
    stop.store(true, Ordering::SeqCst);
    let mut history = History::from([("acquired", 1), ("lost", 1)]);
    for task in tasks {
        for (outcome, count) in task.await.unwrap() {
            *history.entry(outcome).or_default() += count;
        }
    }
    drop(victim);
    let ended = async || values.gauge("dlock_held", &[&lock]) == 0.0 && values.gauge("dlock_waiting", &[&lock]) == 0.0;
    wait_until("all have ended", ended).await.unwrap();
    let lost = async || values.count("dlock_losses_total", &[&lock]) == history["lost"];
    wait_until("the losses of the history", lost).await.unwrap();
    for (outcome, count) in history.iter().filter(|(outcome, _)| **outcome != "lost") {
        let counted = values.count("dlock_acquisitions_total", &[&lock, &format!("outcome={outcome}")]);
        assert_eq!(counted, *count, "{outcome} in {history:?}");
    }
    let calls: u64 = history.iter().filter(|(outcome, _)| **outcome != "lost").map(|(_, count)| count).sum();
    assert_eq!(values.count("dlock_acquisitions_total", &[&lock]), calls, "{history:?}");
    assert_eq!(values.times("dlock_hold_seconds", &[&lock]).0, history["acquired"]);
    // The last request of the callers may have been too late.
    let is_up = async || {
        let _ = registry.lock("up").backend(backend).name("up").acquire().await;
        values.gauge("dlock_store_up", &[&of_backend]) == 1.0
    };
    wait_until("the store is up", is_up).await.unwrap();
    assert!(values.count("dlock_store_requests_total", &[&of_backend, "operation=acquire", "outcome=outage"]) > 0);
    assert_eq!(registry.observer_trouble(), (0, 0));
}
