//! Rows, contenders and figures, as a table for people and as data.

use serde_json::{Map, Value, json};

/// One kind of work, with what each contender reached.
pub(crate) struct Row {
    pub(crate) name: String,
    /// The measured work, in one sentence.
    pub(crate) about: String,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) aims: Vec<Aim>,
}

/// A target, such as «p50 at most 1.10 × the floor».
#[derive(Clone)]
pub(crate) struct Aim {
    pub(crate) text: String,
    pub(crate) measured: f64,
    pub(crate) reached: bool,
    /// The least and the most of several runs.
    pub(crate) spread: Option<(f64, f64)>,
}

pub(crate) struct Contender {
    pub(crate) name: String,
    /// Name and value, in the order of the columns.
    pub(crate) figures: Vec<(&'static str, f64)>,
}

impl Contender {
    /// Of a row of uncontended cycles. Each round has the cycles per second, the median and the 99th percentile in µs, and the
    /// client's processor and sleeps.
    pub(crate) fn of_cycles(name: &str, rounds: &[[f64; 5]], ratio: (&'static str, f64)) -> Self {
        let middle = |pick: usize| median(rounds.iter().map(|round| round[pick]).collect());
        let figures = vec![
            ("cycles/s", middle(0)),
            ("p50 µs", middle(1)),
            ("p99 µs", middle(2)),
            ratio,
            ("client's processor, µs", middle(3)),
            ("client's sleeps", middle(4)),
        ];
        Self { name: name.to_owned(), figures }
    }
}

impl Row {
    pub(crate) fn figure(&self, contender: &str, figure: &str) -> f64 {
        let found = self.contenders.iter().find(|c| c.name == contender);
        let found = found.and_then(|c| c.figures.iter().find(|(name, _)| *name == figure));
        found.map_or(f64::NAN, |(_, value)| *value)
    }

    pub(crate) fn aim(&mut self, text: &str, measured: f64, reached: bool) {
        self.aims.push(Aim { text: text.to_owned(), measured, reached, spread: None });
    }
}

/// The middle one of the rounds.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The value below which the share of sorted values lies.
pub(crate) fn percentile(sorted: &[u64], share: f64) -> u64 {
    let index = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(0)
}

pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let columns: Vec<_> = row.contenders.first().map_or(vec![], |c| c.figures.iter().map(|f| f.0).collect());
        text += &format!("### {}\n\n{}\n\n| contender | {} |\n", row.name, row.about, columns.join(" | "));
        text += &format!("|{}\n", " --- |".repeat(columns.len() + 1));
        for contender in &row.contenders {
            let cells: Vec<_> = contender.figures.iter().map(|(_, value)| number(*value)).collect();
            text += &format!("| {} | {} |\n", contender.name, cells.join(" | "));
        }
        text.push('\n');
        for Aim { text: aim, measured, reached, spread } in &row.aims {
            let spread = spread.map(|(least, most)| format!(" ({least:.2} to {most:.2})")).unwrap_or_default();
            text += &format!("- {} {aim}: {measured:.2}{spread}\n", if *reached { "reached:" } else { "NOT reached:" });
        }
        text.push('\n');
    }
    text
}

fn number(value: f64) -> String {
    match value {
        v if v.is_nan() => "–".into(),
        v if v.abs() >= 1000.0 => format!("{v:.0}"),
        v if v.abs() >= 100.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

pub(crate) fn json(rows: &[Row]) -> String {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let contenders: Map<String, Value> = row
                .contenders
                .iter()
                .map(|c| {
                    let figures = c.figures.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
                    (c.name.clone(), Value::Object(figures.collect()))
                })
                .collect();
            let aim = |aim: &Aim| json!({"aim": aim.text, "measured": aim.measured, "reached": aim.reached, "spread": aim.spread});
            let aims: Vec<_> = row.aims.iter().map(aim).collect();
            json!({"row": row.name, "about": row.about, "contenders": contenders, "aims": aims})
        })
        .collect();
    serde_json::to_string_pretty(&Value::Array(rows)).unwrap_or_default()
}

/// The page with these rows in place of their former ones; the others stay as they are.
pub(crate) fn page(former: &str, table: &str, order: &[&str]) -> String {
    let sections = |text: &str| -> Vec<(String, String)> {
        let rows = text.split("\n### ").skip(1);
        rows.map(|row| (row.lines().next().unwrap_or_default().to_owned(), format!("### {}\n", row.trim_end())))
            .collect()
    };
    let (old, new) = (sections(former), sections(&format!("\n{table}")));
    let find =
        |rows: &[(String, String)], name: &str| rows.iter().find(|(row, _)| row == name).map(|row| row.1.clone());
    let rows: Vec<_> = order.iter().filter_map(|name| find(&new, name).or_else(|| find(&old, name))).collect();
    format!(
        "# Performance\n\n\
         Written by `cargo xtask bench --write`; one row again: `cargo xtask bench contended-4x4 --write`.\n\n\
         Client and server share the machine's cores, so read the ratios, not the figures.\n\
         The contenders of a row run in turns within one run, and each figure is the median of the rounds. If an aim ends in\n\
         two numbers in parentheses, the row shows the medians of three runs, each in its own process. The two numbers are the \
         lowest and the highest result for that aim.\n\
         A hand-over is counted only when the holder has changed.\n\n\
         ![The speed of dlock, of floors and of peers, in parts of the floor](pictures/performance.svg)\n\n{}",
        rows.join("\n")
    )
}
