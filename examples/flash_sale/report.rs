//! The output on the terminal: a progress bar during the sale, a table at the end.

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::buyer::Visit;
use crate::sale::Sale;

/// A bar on a terminal; four lines elsewhere.
pub(crate) struct Progress {
    title: &'static str,
    buyers: u32,
    bar: ProgressBar,
    lines: bool,
}

impl Progress {
    pub(crate) fn new(title: &'static str, buyers: u32) -> Self {
        let bar = ProgressBar::with_draw_target(Some(buyers.into()), ProgressDrawTarget::stdout());
        if let Ok(style) = ProgressStyle::with_template("{msg:12} {bar:40} {pos:>5} of {len} buyers  {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(title);
        Self { title, buyers, bar, lines: !stdout().is_terminal() }
    }

    pub(crate) fn one_more(&self) {
        self.bar.inc(1);
        let (done, all) = (self.bar.position(), u64::from(self.buyers));
        if self.lines && done * 4 / all > (done - 1) * 4 / all {
            println!("{:12} {done:>5} of {all} buyers", self.title);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.abandon();
    }
}

/// One line for each figure, one column for each sale.
pub(crate) fn table(stock: u32, sales: &[&Sale]) -> String {
    let figure = |name: &str, of: &dyn Fn(&Sale) -> String| {
        sales.iter().fold(format!("\n{name:<18}"), |line, sale| format!("{line}{:>16}", of(sale)))
    };
    let ended = |sale: &Sale, how| sale.visits.iter().filter(|(visit, _)| *visit == how).count().to_string();
    let lock = |sale: &Sale, which: usize| locking(sale).map_or("-".into(), |figures| figures[which].clone());
    [
        figure("", &|sale| sale.title.into()),
        figure("sold", &|sale| sale.count.sold().to_string()),
        figure("oversold", &|sale| sale.count.oversold(stock).to_string()),
        figure("left in stock", &|sale| sale.count.left().to_string()),
        figure("found it sold out", &|sale| ended(sale, Visit::SoldOut)),
        figure("wait timed out", &|sale| ended(sale, Visit::TimedOut)),
        figure("seconds", &|sale| format!("{:.2}", sale.took.as_secs_f64())),
        figure("acquisitions/s", &|sale| lock(sale, 0)),
        figure("wait p50", &|sale| lock(sale, 1)),
        figure("wait p99", &|sale| lock(sale, 2)),
    ]
    .concat()
}

/// Acquisitions per second, and the median and the 99th percentile of the waits for them.
fn locking(sale: &Sale) -> Option<[String; 3]> {
    let granted = sale.visits.iter().filter(|(visit, _)| *visit != Visit::TimedOut);
    let mut waits: Vec<_> = granted.map(|(_, waited)| *waited).collect();
    if !sale.locked || waits.is_empty() {
        return None;
    }
    waits.sort_unstable();
    let speed = waits.len() as f64 / sale.took.as_secs_f64();
    Some([format!("{speed:.0}"), milliseconds(percentile(&waits, 50)), milliseconds(percentile(&waits, 99))])
}

/// The smallest value that is not below `percent` of all values.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
