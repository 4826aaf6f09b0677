//! The metrics say what has happened: they are compared with a history that the callers write.

#![expect(clippy::unwrap_used, reason = "a test may fail by it")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock::metrics::Metrics;
use dlock::{ErrorKind, Key, Mode, Registry, Wait};
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
    let registry = Registry::new();
    registry.install("main", dlock_memory::Memory::new()).unwrap();
    registry.set_default("main").unwrap();
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
        match fastrand::u8(..24) {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_counts_are_those_of_the_history() {
    let (values, registry) = (values(), registry());
    let tasks = (0..32).map(|_| tokio::spawn(calls(registry.clone(), 700)));
    let mut history = History::new();
    for task in tasks.collect::<Vec<_>>() {
        for (outcome, count) in task.await.unwrap() {
            *history.entry(outcome).or_default() += count;
        }
    }
    let lock = "lock=history";
    let ended = async || values.gauge("dlock_held", &[lock]) == 0.0 && values.gauge("dlock_waiting", &[lock]) == 0.0;
    wait_until("all have ended", ended).await.unwrap();
    let of = |outcome: &str| values.count("dlock_acquisitions_total", &[lock, &format!("outcome={outcome}")]);
    for outcome in ["acquired", "busy", "timed_out"] {
        assert_eq!(of(outcome), history[outcome], "{outcome} in {history:?}");
    }
    // By `max_hold`, or because a renewal of so short a lease came late.
    assert_eq!(values.count("dlock_losses_total", &[lock]), history["lost"]);
    assert_eq!(values.times("dlock_hold_seconds", &[lock]).0, history["acquired"]);
    assert_eq!(values.times("dlock_acquisition_seconds", &[lock]).0, history["acquired"]);
    // A call that its timeout drops before the first poll has asked for nothing.
    assert!(of("given_up") > 0 && of("given_up") <= history["given_up"], "{} in {history:?}", of("given_up"));
    assert_eq!(registry.observer_trouble(), (0, 0));
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
    assert_eq!(values.kept(made), 2 * 1000, "held and waiting of each");
    assert_eq!(values.count("dlock_acquisitions_total", &["lock=other", "outcome=acquired"]), 100);
}
