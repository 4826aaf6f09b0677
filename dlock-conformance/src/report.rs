//! The results: store × case, as a table for people and as JSON for tools.

use std::fmt::{self, Write};

use serde::Serialize;

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "text")]
pub enum Outcome {
    /// The promise was kept.
    Passed,
    /// The promise was broken. The text says how.
    Failed(String),
    /// The store does not give this promise. The text names the field or the power that says so.
    NotApplicable(String),
    /// The store gives the promise, but the suite could not test it. The text says what the [`Store`](super::Store)
    /// must offer.
    Skipped(String),
}

impl Outcome {
    /// Whether the case passed or does not apply.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        matches!(self, Self::Passed | Self::NotApplicable(_))
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "FAILED",
            Self::NotApplicable(_) => "-",
            Self::Skipped(_) => "skipped",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(text) => write!(f, "failed: {text}"),
            Self::NotApplicable(text) => write!(f, "not applicable ({text})"),
            Self::Skipped(text) => write!(f, "skipped ({text})"),
        }
    }
}

/// One case and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The promise.
    pub case: String,
    /// The result.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The results of all cases for one store.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The store's name.
    pub store: String,
    /// One row for each case.
    pub rows: Vec<Row>,
}

impl Report {
    /// A report without rows, for your own runner. [`run`](super::run) makes a full report.
    #[must_use]
    pub const fn new(store: String) -> Self {
        Self { store, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn add(&mut self, case: &str, outcome: Outcome) {
        self.rows.push(Row { case: case.to_owned(), outcome });
    }

    /// Whether every case that applies has passed. A skipped case is not clean: an untested promise does not count as
    /// kept.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.outcome.is_clean())
    }

    /// Turns skipped cases into failed ones, for stores that must be tested in full.
    #[must_use]
    pub fn require_no_skips(mut self) -> Self {
        for row in &mut self.rows {
            if let Outcome::Skipped(text) = &row.outcome {
                row.outcome = Outcome::Failed(format!("skipped, but required: {text}"));
            }
        }
        self
    }

    /// The cases that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| matches!(row.outcome, Outcome::Failed(_)))
    }

    /// Case × store as aligned text, followed by the text of every result that is not clean.
    #[must_use]
    pub fn table(reports: &[Self]) -> String {
        let mut cases: Vec<&str> = Vec::new();
        for row in reports.iter().flat_map(|report| &report.rows) {
            if !cases.contains(&row.case.as_str()) {
                cases.push(&row.case);
            }
        }
        let first = cases.iter().map(|case| case.chars().count()).max().unwrap_or(0);
        let mut text = format!("{:first$}", "");
        for report in reports {
            let _ = write!(text, "  {:7}", report.store);
        }
        for case in cases {
            let _ = write!(text, "\n{case:first$}");
            for report in reports {
                let row = report.rows.iter().find(|row| row.case == case);
                let width = report.store.chars().count().max(7);
                let _ = write!(text, "  {:width$}", row.map_or("", |row| row.outcome.word()));
            }
        }
        for report in reports {
            for row in report.rows.iter().filter(|row| !row.outcome.is_clean()) {
                let _ = write!(text, "\n{}: {}: {}", report.store, row.case, row.outcome);
            }
        }
        text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n"
    }

    /// The same as JSON, for tools.
    #[must_use]
    pub fn to_json(reports: &[Self]) -> String {
        serde_json::to_string_pretty(reports).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("here".into());
        report.add("it works", Outcome::Passed);
        report.add("it works twice", Outcome::Skipped("no second".into()));
        report
    }

    #[test]
    fn a_skip_is_not_clean_and_may_be_made_a_failure() {
        assert!(!report().is_clean());
        assert_eq!(report().failures().count(), 0);
        assert_eq!(report().require_no_skips().failures().count(), 1);
        assert!(!Report::new("empty".into()).is_clean());
    }

    #[test]
    fn the_table_is_aligned_and_explains() {
        let table = Report::table(&[report()]);
        let wanted = "                here\nit works        passed\nit works twice  skipped\n\
                      here: it works twice: skipped (no second)\n";
        assert_eq!(table, wanted);
        assert!(Report::to_json(&[report()]).contains("\"outcome\": \"skipped\""));
    }
}
