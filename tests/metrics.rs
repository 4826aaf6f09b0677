//! The metrics say what has happened: they are compared with a history that the callers write.

#![expect(clippy::unwrap_used, reason = "a test may fail by it")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock::metrics::Metrics;
use dlock::{Cohort, Error, ErrorKind, Key, Mode, Observer, OncePer, Registry, Wait};
use dlock_testkit::servers::{Instance, Redis};
use dlock_testkit::wait_until;
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, KeyName, Metadata, Recorder, SharedString, Unit, set_global_recorder,
};

/// Keeps all values, by name and labels.
#[derive(Clone, Default)]
struct Values(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    described: BTreeMap<String, Option<Unit>>,
    counters: BTreeMap<String, Arc<AtomicU64>>,
    gauges: BTreeMap<String, Arc<AtomicU64>>,
    histograms: BTreeMap<String, Arc<Times>>,
}

/// How many values a histogram got, and their sum.
#[derive(Default)]
struct Times(Mutex<(u64, f64)>);

impl HistogramFn for Times {
    fn record(&self, value: f64) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *times = (times.0 + 1, times.1 + value);
    }
}

/// As Prometheus writes it.
fn text(key: &metrics::Key) -> String {
    let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

impl Values {
    fn kept<T>(&self, look: impl FnOnce(&mut Kept) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The sum of all counters with this name and these labels.
    fn count(&self, name: &str, labels: &[&str]) -> u64 {
        self.kept(|kept| sum(&kept.counters, name, labels, |value| value.load(Ordering::SeqCst)))
    }

    fn gauge(&self, name: &str, labels: &[&str]) -> f64 {
        self.kept(|kept| sum(&kept.gauges, name, labels, |value| f64::from_bits(value.load(Ordering::SeqCst))))
    }

    /// How many values the histograms have, and their sum.
    fn times(&self, name: &str, labels: &[&str]) -> (u64, f64) {
        self.kept(|kept| {
            let times = |at: fn(&(u64, f64)) -> f64| {
                sum(&kept.histograms, name, labels, |times| at(&times.0.lock().unwrap_or_else(PoisonError::into_inner)))
            };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let count = times(|times| f64::from(u32::try_from(times.0).unwrap())) as u64;
            (count, times(|times| times.1))
        })
    }
}

fn sum<V, T: std::iter::Sum>(of: &BTreeMap<String, V>, name: &str, labels: &[&str], value: impl Fn(&V) -> T) -> T {
    let fits = |text: &str| {
        text.split('{').next() == Some(name)
            && labels.iter().all(|label| text.contains(&format!("{label},")) || text.contains(&format!("{label}}}")))
    };
    of.iter().filter(|(text, _)| fits(text)).map(|(_, kept)| value(kept)).sum()
}

impl Recorder for Values {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.kept(|kept| kept.described.insert(name.as_str().to_owned(), unit));
    }
    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.kept(|kept| kept.described.insert(name.as_str().to_owned(), unit));
    }
    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.kept(|kept| kept.described.insert(name.as_str().to_owned(), unit));
    }
    fn register_counter(&self, key: &metrics::Key, _: &Metadata<'_>) -> Counter {
        self.kept(|kept| Counter::from_arc(kept.counters.entry(text(key)).or_default().clone()))
    }
    fn register_gauge(&self, key: &metrics::Key, _: &Metadata<'_>) -> Gauge {
        self.kept(|kept| Gauge::from_arc(kept.gauges.entry(text(key)).or_default().clone()))
    }
    fn register_histogram(&self, key: &metrics::Key, _: &Metadata<'_>) -> Histogram {
        self.kept(|kept| Histogram::from_arc(kept.histograms.entry(text(key)).or_default().clone()))
    }
}

/// One for the process, as the exporter of a service is. Each test has names of its own.
fn values() -> &'static Values {
    static VALUES: std::sync::LazyLock<Values> = std::sync::LazyLock::new(|| {
        let values = Values::default();
        set_global_recorder(values.clone()).unwrap_or_else(|_| unreachable!("no other test sets it"));
        values
    });
    &VALUES
}

fn registry() -> Registry {
    registry_of("main")
}

/// With a store of this name. The metrics of stores are told apart by it.
fn registry_of(name: &str) -> Registry {
    let registry = Registry::new();
    registry.install(name, dlock_memory::Memory::new()).unwrap();
    registry.set_default(name).unwrap();
    registry.observe(Metrics::new());
    registry
}

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

/// What the label says of a call that has failed.
fn outcome_of(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::WaitTimeout => "timed_out",
        kind => kind.as_str(),
    }
}

/// Calls over a store that fails for a while, until `stop`.
async fn calls_in_an_outage(registry: Registry, acquired: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> History {
    let mut history = History::new();
    let mut note = |outcome| *history.entry(outcome).or_default() += 1;
    while !stop.load(Ordering::SeqCst) {
        let lock = registry.lock(Key::text("k").value(&fastrand::u8(..4))).name("history over redis");
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
    let of = |outcome: &str| values.count("dlock_acquisitions_total", &[lock, &format!("outcome={outcome}")]);
    for outcome in ["acquired", "busy", "timed_out"] {
        assert_eq!(of(outcome), history[outcome], "{outcome} in {history:?}");
    }
    // By `max_hold`, or because a renewal of so short a lease came late, or by an operator.
    assert_eq!(values.count("dlock_losses_total", &[lock]), history["lost"]);
    assert_eq!(values.count("dlock_losses_total", &[lock, "cause=broken"]), history["broken"]);
    assert_eq!(values.count("dlock_breaks_total", &["backend=history", "store=memory"]), history["broken"]);
    assert_eq!(values.times("dlock_hold_seconds", &[lock]).0, history["acquired"]);
    assert_eq!(values.times("dlock_acquisition_seconds", &[lock]).0, history["acquired"]);
    // A call that its timeout drops before the first poll has asked for nothing.
    assert!(of("given_up") > 0 && of("given_up") <= history["given_up"], "{} in {history:?}", of("given_up"));
    assert_eq!(registry.observer_trouble(), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_counts_are_those_of_the_history_over_an_outage_and_kills() {
    let values = values();
    let server = Arc::new(Instance::start(Redis::default()).unwrap());
    // Each loss and each outage of this run is wanted, and its end need not be waited for.
    let url = format!("{}?restart_guard=off", server.url());
    let registry = Registry::new();
    registry.observe(Metrics::new());
    registry.connect("outage", &url).await.unwrap();
    let (acquired, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let run = |_| tokio::spawn(calls_in_an_outage(registry.clone(), acquired.clone(), stop.clone()));
    let tasks: Vec<_> = (0..16).map(run).collect();
    let some_more = async |what: &str| {
        let before = acquired.load(Ordering::SeqCst);
        wait_until(what, async || acquired.load(Ordering::SeqCst) > before + 200).await.unwrap();
    };
    for _ in 0..2 {
        let mut other = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_holder_in_another_process", "--nocapture"])
            .env(HOLDER, &url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
        tokio::task::spawn_blocking(move || lines.any(|line| line.unwrap() == "held")).await.unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
        some_more("calls after the kill").await;
    }
    let victim = registry.lock("victim").name("history over redis").ttl(TTL).acquire().await.unwrap();
    let blocking = async |work: fn(&Instance)| {
        let server = server.clone();
        tokio::task::spawn_blocking(move || work(&server)).await.unwrap();
    };
    blocking(|server| server.kill9().unwrap()).await;
    let outages = || values.count("dlock_acquisitions_total", &["lock=history over redis", "outcome=outage"]);
    wait_until("calls fail", async || outages() > 100).await.unwrap();
    assert_eq!(values.gauge("dlock_store_up", &["backend=outage"]), 0.0);
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
    let lock = "lock=history over redis";
    let ended = async || values.gauge("dlock_held", &[lock]) == 0.0 && values.gauge("dlock_waiting", &[lock]) == 0.0;
    wait_until("all have ended", ended).await.unwrap();
    let lost = async || values.count("dlock_losses_total", &[lock]) == history["lost"];
    wait_until("the losses of the history", lost).await.unwrap();
    for (outcome, count) in history.iter().filter(|(outcome, _)| **outcome != "lost") {
        let counted = values.count("dlock_acquisitions_total", &[lock, &format!("outcome={outcome}")]);
        assert_eq!(counted, *count, "{outcome} in {history:?}");
    }
    let calls: u64 = history.iter().filter(|(outcome, _)| **outcome != "lost").map(|(_, count)| count).sum();
    assert_eq!(values.count("dlock_acquisitions_total", &[lock]), calls, "{history:?}");
    assert_eq!(values.times("dlock_hold_seconds", &[lock]).0, history["acquired"]);
    assert_eq!(values.gauge("dlock_store_up", &["backend=outage"]), 1.0);
    assert!(values.count("dlock_store_requests_total", &["backend=outage", "operation=acquire", "outcome=outage"]) > 0);
    assert_eq!(registry.observer_trouble(), (0, 0));
}

#[tokio::test]
async fn requests_to_the_store_are_counted_with_their_time() {
    let (values, registry) = (values(), registry_of("requests"));
    let count = |operation: &str| {
        let labels = ["backend=requests", "store=memory", &format!("operation={operation}"), "outcome=answered"];
        let times = values.times("dlock_store_request_seconds", &labels[..3]).0;
        let counted = values.count("dlock_store_requests_total", &labels);
        assert_eq!(times, counted, "{operation}");
        counted
    };
    for _ in 0..3 {
        registry.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!((count("acquire"), count("release"), count("inspect"), count("break")), (3, 3, 0, 0));
    registry.lock("k").holders().await.unwrap();
    registry.ready("requests").await.unwrap();
    assert_eq!((count("inspect"), count("ready")), (1, 1));
    assert_eq!(values.gauge("dlock_store_up", &["backend=requests"]), 1.0);
    assert_eq!(values.gauge("dlock_store_guarded", &["backend=requests"]), 0.0);
    let guard = registry.lock("k").name("confirmed").acquire().await.unwrap();
    guard.confirm().await.unwrap();
    assert!(count("renew") >= 1);
}

#[tokio::test]
async fn a_guard_that_keeps_grants_back_is_seen() {
    let server = Instance::start(Redis::default()).unwrap();
    let (values, registry) = (values(), Registry::new());
    registry.observe(Metrics::new());
    registry.connect("guarded", &format!("{}?restart_guard=10m", server.url())).await.unwrap();
    let error = registry.lock("k").wait(Wait::None).acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Outage, "{error}");
    let labels = ["backend=guarded", "store=redis"];
    assert_eq!(values.gauge("dlock_store_guarded", &labels), 1.0, "{error}");
    assert_eq!(values.gauge("dlock_store_up", &labels), 1.0, "it answers");
    assert_eq!(
        values.count("dlock_store_requests_total", &["backend=guarded", "operation=acquire", "outcome=guarded"]),
        1
    );
}

#[tokio::test]
async fn hand_overs_are_counted_by_their_way() {
    let (values, registry) = (values(), registry());
    let lock = || registry.lock("k").name("handed").wait(Wait::Forever).cohort(Some(Cohort { passes: 64, span: None }));
    let way = |way: &str| values.count("dlock_handovers_total", &["lock=handed", &format!("way={way}")]);
    let guard = lock().acquire().await.unwrap();
    assert_eq!(values.count("dlock_handovers_total", &["lock=handed"]), 0, "the caller has asked for it itself");
    let waiter = tokio::spawn(lock().acquire());
    wait_until("a waiter", async || values.gauge("dlock_waiting", &["lock=handed"]) == 1.0).await.unwrap();
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!((way("cohort"), way("release"), way("queue")), (1, 0, 0));
}

#[tokio::test]
async fn a_wait_that_could_not_end_is_counted() {
    let (values, registry) = (values(), registry());
    let lock = || registry.lock("k").name("nested");
    let nested = lock().run(async |_| lock().wait(Wait::Forever).acquire().await.map(drop)).await.unwrap();
    assert_eq!(*nested.unwrap_err().kind(), ErrorKind::WouldDeadlock);
    assert_eq!(values.count("dlock_deadlocks_total", &["lock=nested", "kind=would_deadlock"]), 1);
}

#[tokio::test]
async fn a_refused_write_is_counted() {
    let (values, registry) = (values(), registry());
    let refused = || values.count("dlock_fenced_writes_refused_total", &[]);
    let guard = registry.lock("k").name("fenced").acquire().await.unwrap();
    let fence = guard.fence().unwrap();
    let line = dlock::fenced::line(&fence, "token", "?").unwrap();
    line.written(1).unwrap();
    assert_eq!(refused(), 0);
    line.written(0).unwrap_err();
    assert_eq!(refused(), 1);
}

#[tokio::test]
async fn the_leader_is_seen_with_its_term() {
    let (values, registry) = (values(), registry());
    let labels = ["election=billing", "backend=main", "store=memory"];
    let seen = |name: &str| values.gauge(name, &labels);
    let changes = || values.count("dlock_leader_changes_total", &labels);
    for change in 1..=2 {
        let leadership = registry.elect("billing").candidate("web-3").campaign().await.unwrap();
        assert_eq!((seen("dlock_leader"), seen("dlock_leader_term")), (1.0, leadership.term().get() as f64));
        assert_eq!(changes(), change);
        leadership.resign().await.unwrap();
        assert_eq!((seen("dlock_leader"), seen("dlock_leader_term")), (0.0, 0.0));
    }
    registry.lock("billing").name("no election").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(changes(), 2, "a lock is no election");
}

#[tokio::test]
async fn a_task_tells_its_period_and_its_last_success() {
    let (values, registry) = (values(), registry());
    let day = Duration::from_secs(86_400);
    let task = || registry.lock("k").name("nightly").once_per(OncePer::new(day));
    let success = || values.gauge("dlock_last_success_timestamp_seconds", &["lock=nightly"]);
    drop(task().acquire().await.unwrap());
    wait_until("its end", async || values.gauge("dlock_held", &["lock=nightly"]) == 0.0).await.unwrap();
    assert_eq!(success(), 0.0, "nobody knows whether it has succeeded");
    assert_eq!(values.gauge("dlock_once_per_seconds", &["lock=nightly"]), 86_400.0);
    let asked = values.gauge("dlock_once_per_asked_timestamp_seconds", &["lock=nightly"]);
    let other = registry.lock("other").name("nightly").once_per(OncePer::new(day));
    other.run(async |_| ()).await.unwrap();
    // Both are read from one clock, in this order, and the store's has milliseconds.
    assert!(asked > 1.7e9 && success() + 0.001 >= asked, "{asked} {}", success());
}

#[tokio::test]
async fn limits_are_told_where_there_are_some() {
    let (values, registry) = (values(), registry());
    let lock = || registry.lock("k").name("limited");
    let limits =
        || ["dlock_wait_limit_seconds", "dlock_max_hold_seconds"].map(|name| values.gauge(name, &["lock=limited"]));
    lock().wait(Wait::Forever).acquire().await.unwrap().release().await.unwrap();
    assert!(
        values.kept(|kept| !kept.gauges.keys().any(|text| text.contains("wait_limit") && text.contains("=limited")))
    );
    for seconds in [3, 5] {
        let longest = Duration::from_secs(seconds);
        lock().wait(Wait::UpTo(longest)).max_hold(10 * longest).acquire().await.unwrap().release().await.unwrap();
        let seconds = longest.as_secs_f64();
        assert_eq!(limits(), [seconds, 10.0 * seconds]);
    }
}

#[test]
fn dropped_events_are_counted() {
    let values = values();
    Metrics::new().on_dropped(7);
    assert_eq!(values.count("dlock_dropped_events_total", &[]), 7);
}

/// With labels that say which lock, store and mode; never the key.
#[tokio::test]
async fn a_hold_and_a_waiter_are_seen_with_their_labels() {
    let (values, registry) = (values(), registry());
    let lock = || registry.lock(Key::text("stock:").value(&"secret42")).name("shop::deduct");
    let labels = ["lock=shop::deduct", "backend=main", "store=memory", "mode=exclusive"];
    let guard = lock().acquire().await.unwrap();
    assert_eq!((values.gauge("dlock_held", &labels), values.gauge("dlock_waiting", &labels)), (1.0, 0.0));
    let waiter = tokio::spawn(lock().wait(Wait::Forever).acquire());
    wait_until("the waiter is seen", async || values.gauge("dlock_waiting", &labels) == 1.0).await.unwrap();
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!((values.gauge("dlock_held", &labels), values.gauge("dlock_waiting", &labels)), (0.0, 0.0));
    registry
        .lock("permits")
        .name("shop::permits")
        .mode(Mode::Permits(2.try_into().unwrap()))
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(values.count("dlock_acquisitions_total", &["lock=shop::permits", "mode=permits"]), 1);
    values.kept(|kept| {
        let all = kept.counters.keys().chain(kept.gauges.keys()).chain(kept.histograms.keys());
        assert!(all.clone().all(|text| !text.contains("secret42")));
        for text in all {
            let name = text.split('{').next().unwrap();
            assert!(kept.described.contains_key(name), "{name} has no description");
            let is_time = name.ends_with("_seconds");
            assert_eq!(is_time, kept.described[name] == Some(Unit::Seconds), "{name}");
        }
    });
}

#[tokio::test]
async fn renewals_say_how_much_of_the_lease_was_left() {
    let (values, registry) = (values(), registry());
    let guard = registry.lock("k").name("renewed").ttl(Duration::from_millis(300)).acquire().await.unwrap();
    let renewed = async || values.count("dlock_renewals_total", &["lock=renewed", "outcome=renewed"]) >= 3;
    wait_until("three renewals", renewed).await.unwrap();
    drop(guard);
    let (count, sum) = values.times("dlock_renewal_lease_left_ratio", &["lock=renewed"]);
    assert!(count >= 3 && sum > 0.0 && sum < f64::from(u32::try_from(count).unwrap()), "{count} {sum}");
}

#[tokio::test]
async fn a_failed_call_is_counted_by_the_kind_of_its_error() {
    let (values, registry) = (values(), registry());
    registry.connect_lazy("down", "redis://127.0.0.1:1/").unwrap();
    let error = registry.lock("k").name("down").backend("down").wait(Wait::None).acquire().await.unwrap_err();
    let outcome = format!("outcome={}", error.kind().as_str());
    assert_eq!(values.count("dlock_acquisitions_total", &["lock=down", "backend=down", &outcome]), 1, "{error}");
    assert_eq!(values.gauge("dlock_waiting", &["lock=down"]), 0.0);
}

#[tokio::test]
async fn a_name_that_is_made_at_run_time_does_not_fill_the_exporter() {
    let (values, registry) = (values(), registry());
    for number in 0..1100 {
        let lock = registry.lock("k").name(format!("made {number}"));
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    let made = |kept: &mut Kept| kept.gauges.keys().filter(|text| text.contains("lock=made")).count();
    assert_eq!(values.kept(made), 4 * 1000, "held, waiting, the longest wait and the longest hold of each");
    assert_eq!(values.count("dlock_acquisitions_total", &["lock=other", "outcome=acquired"]), 100);
}
