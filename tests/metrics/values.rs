//! An exporter that keeps all values.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, KeyName, Metadata, Recorder, SharedString, Unit, set_global_recorder,
};

/// Keeps all values, by name and labels.
#[derive(Clone, Default)]
pub(crate) struct Values(Arc<Mutex<Kept>>);

#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) described: BTreeMap<String, Option<Unit>>,
    pub(crate) counters: BTreeMap<String, Arc<AtomicU64>>,
    pub(crate) gauges: BTreeMap<String, Arc<AtomicU64>>,
    pub(crate) histograms: BTreeMap<String, Arc<Times>>,
}

/// How many values a histogram got, and their sum.
#[derive(Default)]
pub(crate) struct Times(Mutex<(u64, f64)>);

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
    pub(crate) fn kept<T>(&self, look: impl FnOnce(&mut Kept) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The sum of all counters with this name and these labels.
    pub(crate) fn count(&self, name: &str, labels: &[&str]) -> u64 {
        self.kept(|kept| sum(&kept.counters, name, labels, |value| value.load(Ordering::SeqCst)))
    }

    pub(crate) fn gauge(&self, name: &str, labels: &[&str]) -> f64 {
        self.kept(|kept| sum(&kept.gauges, name, labels, |value| f64::from_bits(value.load(Ordering::SeqCst))))
    }

    /// How many values the histograms have, and their sum.
    pub(crate) fn times(&self, name: &str, labels: &[&str]) -> (u64, f64) {
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
pub(crate) fn values() -> &'static Values {
    static VALUES: std::sync::LazyLock<Values> = std::sync::LazyLock::new(|| {
        let values = Values::default();
        set_global_recorder(values.clone()).unwrap_or_else(|_| unreachable!("no other test sets it"));
        values
    });
    &VALUES
}
