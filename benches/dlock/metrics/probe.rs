//! The program whose instructions are counted: cycles of acquire and release by 64 tasks, and an exporter as services have it.
//!
//! Arguments: the URL of Redis, how it counts, the number of cycles.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};
use metrics_exporter_prometheus::PrometheusBuilder;

const TASKS: usize = 64;

/// The counts of one cycle, by handles that are kept.
struct ByHand {
    waiting: Gauge,
    held: Gauge,
    acquired: Counter,
    requests: [Counter; 2],
    times: [Histogram; 4],
}

impl ByHand {
    fn new() -> Self {
        Self {
            waiting: metrics::gauge!("waiting"),
            held: metrics::gauge!("held"),
            acquired: metrics::counter!("acquired"),
            requests: ["acquire", "release"].map(|operation| metrics::counter!("requests", "operation" => operation)),
            times: ["wait", "hold", "acquire", "release"].map(|what| metrics::histogram!("seconds", "of" => what)),
        }
    }

    fn acquired(&self) {
        self.waiting.increment(1);
        self.waiting.decrement(1);
        self.held.increment(1);
        self.acquired.increment(1);
        self.times[0].record(0.001);
        self.times[2].record(0.001);
        self.requests[0].increment(1);
    }

    fn released(&self) {
        self.held.decrement(1);
        self.times[1].record(0.001);
        self.times[3].record(0.001);
        self.requests[1].increment(1);
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (url, counts, cycles) = (&arguments[1], arguments[2].as_str(), arguments[3].parse::<usize>().unwrap());
    let buckets: Vec<f64> = (0..12).map(|power| 0.0001 * 4_f64.powi(power)).collect();
    let exporter = || PrometheusBuilder::new().set_buckets(&buckets).unwrap().install_recorder().unwrap();
    let handle = matches!(counts, "by-hand" | "metrics").then(exporter);
    let by_hand = (counts == "by-hand").then(|| Arc::new(ByHand::new()));
    if matches!(counts, "metrics" | "no-exporter") {
        dlock::observe(dlock::metrics::Metrics::new());
    }
    dlock::connect("main", url).await.unwrap();
    let mut left = cycles / TASKS;
    while left > 0 {
        let each = left.min(500);
        let cycle = move |task: usize, by_hand: Option<Arc<ByHand>>| async move {
            for number in 0..each {
                let key = dlock::Key::text("metrics:").value(&(task * 50 + number % 50));
                let guard = dlock::lock(key).name("shop::stock::deduct").acquire().await.unwrap();
                if let Some(by_hand) = &by_hand {
                    by_hand.acquired();
                }
                guard.release().await.unwrap();
                if let Some(by_hand) = &by_hand {
                    by_hand.released();
                }
            }
        };
        let tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(cycle(task, by_hand.clone()))).collect();
        for task in tasks {
            task.await.unwrap();
        }
        // As the exporter's own timer does.
        if let Some(handle) = &handle {
            handle.run_upkeep();
        }
        left -= each;
    }
    if let Some(handle) = &handle {
        std::hint::black_box(handle.render());
    }
    dlock::shutdown(Duration::from_secs(2)).await;
}
