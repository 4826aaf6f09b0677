//! The weight of a worker over a run: memory, threads, descriptors and tasks. The worker in the first place is never killed, so a leak shows.

use std::fmt;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use dlock_sim::Event;
use serde::{Deserialize, Serialize};

use crate::arena::now;
use crate::record::{Line, Record};

/// The worker in the first place.
pub(super) const WITNESS: u32 = 1;

/// A worker weighs itself this often.
const PERIOD: Duration = Duration::from_millis(500);

/// A shorter run says little about growth: pools and caches still fill.
const SOAK: Duration = Duration::from_secs(30 * 60);

/// The steepest slope of the memory in a soak, in KiB for an hour.
const STEEPEST: f64 = 1024.0;

/// Threads of dlock that begin at the first need, which may be a fault: `dlock-foreign`, `dlock-log`, `dlock-events`.
const LATE_THREADS: u64 = 3;

/// The weight of a process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Weight {
    pub(super) kib: u64,
    pub(super) threads: u64,
    pub(super) descriptors: u64,
    pub(super) tasks: u64,
}

impl Weight {
    /// Of this process. Linux tells it.
    fn own() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        let descriptors = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks() as u64;
        Self { kib: field("VmRSS:"), threads: field("Threads:"), descriptors, tasks }
    }
}

/// Writes down what this process weighs, until it ends.
pub(crate) async fn weigh(record: Arc<Record>, process: u32) {
    loop {
        record.line(&Line::Weighs { at: now().as_nanos(), process, weight: Weight::own() });
        tokio::time::sleep(PERIOD).await;
    }
}

/// The weights of the witness in the calm before the first fault, and in the calm after the last one.
pub(super) struct Growth {
    before: Vec<Weight>,
    after: Vec<Weight>,
    /// KiB in an hour, by the line that fits the time in between best.
    slope: f64,
    length: Duration,
}

impl Growth {
    /// Of a run; none if there was no calm or no time.
    pub(super) fn of(lines: &[Line]) -> Option<Self> {
        let weights: Vec<_> = lines
            .iter()
            .filter_map(|line| match line {
                Line::Weighs { at, process: WITNESS, weight } => Some((*at, *weight)),
                _ => None,
            })
            .collect();
        let first = lines.iter().find(|line| matches!(line, Line::Fault { .. }))?.at();
        let last = lines.iter().rev().find(|line| matches!(line, Line::Over { .. }))?.at();
        // When the workers begin to end, some tasks have.
        let end = lines.iter().rev().find(|line| matches!(line, Line::Saw(Event { process: WITNESS, .. })))?.at();
        let between = |from: u64, to: u64| {
            let of_time = weights.iter().filter(move |(at, _)| (from..to).contains(at));
            of_time.map(|(_, weight)| *weight).collect::<Vec<_>>()
        };
        let (before, after) = (between(0, first), between(last, end));
        // The pools and the allocator grow at first.
        let settled = weights.iter().filter(|(at, _)| *at > first + (last - first) / 4 && *at < last);
        let points: Vec<_> = settled.map(|(at, weight)| ((*at - first) as f64 / 3.6e12, weight.kib as f64)).collect();
        let (slope, length) = (slope(&points), Duration::from_nanos(end - lines.first()?.at()));
        (!before.is_empty() && !after.is_empty()).then_some(Self { before, after, slope, length })
    }

    /// The medians before the first fault and after the last one.
    fn medians(&self, of: Part) -> (u64, u64) {
        let median = |weights: &[Weight]| {
            let mut values: Vec<_> = weights.iter().map(of).collect();
            values.sort_unstable();
            values[values.len() / 2]
        };
        (median(&self.before), median(&self.after))
    }

    /// The leaks that a soak shows.
    pub(super) fn leaks(&self) -> Vec<String> {
        if self.length < SOAK {
            return Vec::new();
        }
        // How many there are at a time depends on the calls that wait just then.
        let counts = COUNTS.into_iter().filter_map(|(name, of, room)| {
            let before = self.before.iter().map(of).max()?;
            let after = self.after.iter().map(of).min()?;
            (after > before + room).then(|| format!("{before} {name} at most became {after} at least"))
        });
        let memory = (self.slope > STEEPEST).then(|| format!("the memory grows by {:.0} KiB in an hour", self.slope));
        counts.chain(memory).collect()
    }
}

type Part = fn(&Weight) -> u64;

/// The parts that a soak must not raise by more than this.
const COUNTS: [(&str, Part, u64); 3] = [
    ("tasks", |weight| weight.tasks, 0),
    ("threads", |weight| weight.threads, LATE_THREADS),
    ("descriptors", |weight| weight.descriptors, 0),
];

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the worker that was never killed, before the first fault and after the last one:")?;
        for (name, of, _) in COUNTS {
            let (before, after) = self.medians(of);
            write!(f, " {before} and {after} {name};")?;
        }
        let (before, after) = self.medians(|weight| weight.kib);
        write!(f, " {before} and {after} KiB; {:+.0} KiB in an hour", self.slope)
    }
}

/// The slope of the line that fits these points best.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (over, under) = points
        .iter()
        .fold((0.0, 0.0), |(over, under), point| (over + (point.0 - x) * (point.1 - y), under + (point.0 - x).powi(2)));
    if under > 0.0 { over / under } else { 0.0 }
}
