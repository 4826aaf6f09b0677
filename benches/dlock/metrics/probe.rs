//! The program whose instructions are counted: cycles of acquire and release by 64 tasks, and an exporter as services have it.
//!
//! Arguments: the URL of Redis, how it counts, the number of cycles, and of those before them that are not counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram};
use metrics_exporter_prometheus::PrometheusBuilder;

const TASKS: usize = 64;

/// The counts of one cycle, by handles that are kept, and its times, as the program measures them.
struct ByHand {
    waiting: Gauge,
    held: Gauge,
    acquired: Counter,
    requests: [Counter; 2],
    wait: Histogram,
    hold: Histogram,
    times: [Histogram; 2],
}

impl ByHand {
    fn new() -> Self {
        Self {
            waiting: metrics::gauge!("waiting"),
            held: metrics::gauge!("held"),
            acquired: metrics::counter!("acquired"),
            requests: ["acquire", "release"].map(|operation| metrics::counter!("requests", "operation" => operation)),
            wait: metrics::histogram!("wait"),
            hold: metrics::histogram!("hold"),
            times: ["acquire", "release"].map(|operation| metrics::histogram!("times", "operation" => operation)),
        }
    }

    fn acquired(&self, waited: Duration) {
        self.waiting.decrement(1);
        self.held.increment(1);
        self.acquired.increment(1);
        self.wait.record(waited);
        self.requests[0].increment(1);
        self.times[0].record(waited);
    }

    fn released(&self, held: Duration, took: Duration) {
        self.held.decrement(1);
        self.hold.record(held);
        self.requests[1].increment(1);
        self.times[1].record(took);
    }
}

/// Valgrind counts from here on. Before, connections are opened and the exporter's clock is calibrated, which takes more
/// instructions in one run than in another.
#[inline(never)]
fn counted_from_here() {
    std::hint::black_box(());
}

async fn run(cycles: usize, by_hand: Option<&Arc<ByHand>>) {
    let each = cycles / TASKS;
    let cycle = move |task: usize, by_hand: Option<Arc<ByHand>>| async move {
        let mut instants = [None; 3];
        for number in 0..each {
            let key = dlock::Key::text("metrics:").value(&(task * 50 + number % 50));
            if let Some(by_hand) = &by_hand {
                by_hand.waiting.increment(1);
                instants[0] = Some(Instant::now());
            }
            let guard = dlock::lock(key).name("shop::stock::deduct").acquire().await.unwrap();
            if let (Some(by_hand), Some(asked)) = (&by_hand, instants[0]) {
                let granted = Instant::now();
                by_hand.acquired(granted.duration_since(asked));
                instants[1] = Some(granted);
                instants[2] = Some(Instant::now());
            }
            guard.release().await.unwrap();
            if let (Some(by_hand), [_, Some(granted), Some(ends)]) = (&by_hand, instants) {
                let ended = Instant::now();
                by_hand.released(ended.duration_since(granted), ended.duration_since(ends));
            }
        }
    };
    let tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(cycle(task, by_hand.cloned()))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (url, counts) = (&arguments[1], arguments[2].as_str());
    let [cycles, before] = [3, 4].map(|number| arguments[number].parse::<usize>().unwrap());
    let buckets: Vec<f64> = (0..12).map(|power| 0.0001 * 4_f64.powi(power)).collect();
    let exporter = || PrometheusBuilder::new().set_buckets(&buckets).unwrap().install_recorder().unwrap();
    let handle = matches!(counts, "by-hand" | "metrics").then(exporter);
    let by_hand = (counts == "by-hand").then(|| Arc::new(ByHand::new()));
    if matches!(counts, "metrics" | "no-exporter") {
        dlock::observe(dlock::metrics::Metrics::new());
    }
    dlock::connect("main", url).await.unwrap();
    run(before, by_hand.as_ref()).await;
    counted_from_here();
    run(cycles, by_hand.as_ref()).await;
    // As the exporter's own timer does.
    if let Some(handle) = &handle {
        handle.run_upkeep();
    }
    dlock::shutdown(Duration::from_secs(2)).await;
}
