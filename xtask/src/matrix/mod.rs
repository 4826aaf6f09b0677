//! `cargo xtask matrix`: writes `docs/fault-matrix.md`, each fault on each store with the tests that show what happens. The results
//! are those of the last whole run of `cargo xtask test`, which fails if a test of the matrix is none of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::sh::{Result, read, root};
use crate::workspace::THOROUGH;

/// The faults and their tests. Its first lines say how it is written.
const FAULTS: &str = include_str!("faults.txt");

const BEGIN: &str = "<!-- Written by cargo xtask matrix: begin -->";
const END: &str = "<!-- Written by cargo xtask matrix: end -->";

/// The stores of one column of `promises.md`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Memory,
    Sqlite,
    Redis,
    Redlock,
    Lease,
    Named,
    RowLock,
    Etcd,
    Consul,
    ZooKeeper,
    Pair,
}

impl Column {
    const ALL: [Self; 11] = [
        Self::Memory,
        Self::Sqlite,
        Self::Redis,
        Self::Redlock,
        Self::Lease,
        Self::Named,
        Self::RowLock,
        Self::Etcd,
        Self::Consul,
        Self::ZooKeeper,
        Self::Pair,
    ];

    /// Its word in `faults.txt`, its head on the page, the names of its stores in the trials of `tests/process`, and the crate and the
    /// name of each in the suite.
    fn names(self) -> Names {
        let names = |word, head, trials, suites| Names { word, head, trials, suites };
        match self {
            Self::Memory => names("memory", "memory", &["memory"], &[("memory", "memory")]),
            Self::Sqlite => names("sqlite", "SQLite", &["sqlite"], &[("sqlite", "sqlite")]),
            Self::Redis => names("redis", "Redis", &["redis"], &[("redis", "redis"), ("redis", "redis-cluster")]),
            Self::Redlock => names("redlock", "Redlock", &["redlock"], &[("redlock", "redlock")]),
            Self::Lease => {
                names("lease", "lease rows", &["mysql", "postgres"], &[("mysql", "mysql"), ("postgres", "postgres")])
            }
            Self::Named => names(
                "named",
                "`GET_LOCK`, advisory",
                &["mariadb-named", "postgres-named"],
                &[("mysql", "mysql-named"), ("postgres", "postgres-named")],
            ),
            Self::RowLock => names(
                "row",
                "row locks",
                &["mariadb-row", "postgres-row"],
                &[("mysql", "mysql-row"), ("postgres", "postgres-row")],
            ),
            Self::Etcd => names("etcd", "etcd", &["etcd"], &[("etcd", "etcd")]),
            Self::Consul => names("consul", "Consul", &["consul"], &[("consul", "consul")]),
            Self::ZooKeeper => names("zookeeper", "ZooKeeper", &["zookeeper"], &[("zookeeper", "zookeeper")]),
            Self::Pair => {
                names("pair", "pair", &["paired"], &[("paired", "redis+postgres"), ("paired", "sqlite->redis")])
            }
        }
    }

    /// The columns of a line of `faults.txt`.
    fn of(words: &str) -> Result<Vec<Self>> {
        let from = |first: usize| Ok(Self::ALL[first..].to_vec());
        match words {
            "all" => from(0),
            "shared" => from(1),
            "remote" => from(2),
            _ => {
                let of = |word| Self::ALL.into_iter().find(|column| column.names().word == word);
                let columns = words.split(" and ").map(|word| of(word).ok_or(format!("`{word}` is no store").into()));
                columns.collect()
            }
        }
    }
}

struct Names {
    word: &'static str,
    head: &'static str,
    trials: &'static [&'static str],
    suites: &'static [(&'static str, &'static str)],
}

/// A test, or the tests of a store.
#[derive(Clone, Copy)]
enum Source {
    /// A trial of `tests/process`, on each store of the column.
    Trial(&'static str),
    /// A case of the conformance suite, on each store of the column.
    Suite(&'static str),
    /// A test of the engine. It runs once, without a server.
    Engine(&'static str),
    /// A target, and a test of it.
    Test(&'static str, &'static str),
    /// Nothing runs, for this reason.
    Missing(&'static str),
}

impl Source {
    /// The target and the name of each test.
    fn tests(self, column: Column) -> Vec<(String, String)> {
        let Names { trials, suites, .. } = column.names();
        match self {
            Self::Trial(name) => {
                trials.iter().map(|store| ("dlock-rs process".to_owned(), format!("{store}::{name}"))).collect()
            }
            Self::Suite(case) => suites
                .iter()
                .map(|(package, store)| (format!("{package} conformance"), format!("{store}: {case}")))
                .collect(),
            Self::Engine(name) => vec![("dlock-runtime core".to_owned(), name.to_owned())],
            Self::Test(target, name) => vec![(target.to_owned(), name.to_owned())],
            Self::Missing(_) => Vec::new(),
        }
    }

    fn words(self) -> String {
        match self {
            Self::Trial(name) => format!("trial `{name}`"),
            Self::Suite(case) => format!("suite: {case}"),
            Self::Engine(name) => format!("engine `{name}`"),
            Self::Test(target, name) => format!("{target} `{name}`"),
            Self::Missing(reason) => format!("no run: {reason}"),
        }
    }
}

/// A source, and the stores of which it shows something.
struct Shows {
    columns: Vec<Column>,
    keeps: bool,
    source: Source,
}

/// A fault.
struct Row {
    id: &'static str,
    fault: &'static str,
    shows: Vec<Shows>,
}

/// The rows of `faults.txt`.
fn rows() -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for line in FAULTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let wrong = || format!("faults.txt: `{line}` is not understood");
        match line.strip_prefix("  ") {
            None => {
                let (id, fault) = line.split_once(' ').ok_or_else(wrong)?;
                rows.push(Row { id, fault, shows: Vec::new() });
            }
            Some(line) => {
                let (keeps, line) = line.strip_prefix("NO ").map_or((true, line), |line| (false, line));
                let (columns, line) = line.split_once(": ").ok_or_else(wrong)?;
                let source = match line.split_once(": ").ok_or_else(wrong)? {
                    ("trial", name) => Source::Trial(name),
                    ("suite", case) => Source::Suite(case),
                    ("engine", name) => Source::Engine(name),
                    ("nothing", reason) => Source::Missing(reason),
                    ("test", test) => {
                        test.split_once(": ").map(|(target, name)| Source::Test(target, name)).ok_or_else(wrong)?
                    }
                    _ => return Err(wrong().into()),
                };
                rows.last_mut().ok_or_else(wrong)?.shows.push(Shows { columns: Column::of(columns)?, keeps, source });
            }
        }
    }
    Ok(rows)
}

/// The tests of a whole run that passed, by their target.
#[derive(Default)]
pub(crate) struct Passed {
    tests: BTreeMap<String, BTreeSet<String>>,
    /// The cases of the suite that say nothing of a store, since it does not have what they test.
    idle: BTreeMap<String, BTreeSet<String>>,
    /// How many there are by the last line of the target.
    counts: BTreeMap<String, usize>,
    /// The stores at the head of the suite's table.
    stores: Vec<String>,
}

impl Passed {
    /// Adds what this line of a target tells.
    pub(crate) fn add(&mut self, target: &str, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... ok")) {
            self.tests.entry(target.to_owned()).or_default().insert(name.trim_end().to_owned());
        }
        let count = line.strip_prefix("test result: ok. ").and_then(|line| line.split(' ').next()?.parse().ok());
        if let Some(count) = count {
            self.counts.insert(target.to_owned(), count);
        }
        self.read_table(target, line);
    }

    /// Reads a line of the table that the suite prints at its end.
    fn read_table(&mut self, target: &str, line: &str) {
        let words: Vec<_> = line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
        let is_store = |word: &&str| self.tests.get(target).is_some_and(|tests| has_prefix(tests, word));
        if line.starts_with("  ") && !words.is_empty() && words.iter().all(is_store) {
            self.stores = words.into_iter().map(str::to_owned).collect();
        } else if let [case, results @ ..] = &words[..]
            && results.len() == self.stores.len()
        {
            let idle = self.stores.iter().zip(results).filter(|(_, result)| **result == "-");
            let names = idle.map(|(store, _)| format!("{store}: {case}"));
            self.idle.entry(target.to_owned()).or_default().extend(names);
        }
    }

    pub(crate) fn join(&mut self, others: Self) {
        self.tests.extend(others.tests);
        self.idle.extend(others.idle);
        self.counts.extend(others.counts);
    }

    fn is_idle(&self, (target, name): &(String, String)) -> bool {
        self.idle.get(target).is_some_and(|tests| tests.contains(name))
    }

    fn has(&self, (target, name): &(String, String)) -> bool {
        self.tests.get(target).is_some_and(|tests| tests.contains(name))
    }

    /// Keeps the results for `cargo xtask matrix`. Fails if the matrix names a test that does not exist.
    pub(crate) fn keep(&self) -> Result {
        let commit = read(Command::new("git").args(["rev-parse", "--short=8", "HEAD"])).unwrap_or_default();
        let date = read(Command::new("date").args(["-u", "+%F"]))?;
        let run = json!({ "commit": commit.trim(), "date": date.trim(), "passed": self.tests, "idle": self.idle });
        fs::write(results(), run.to_string())?;
        let unknown = self.unknown(&rows()?).join("\n");
        let told = || format!("xtask/src/matrix/faults.txt names tests that there are not:\n{unknown}").into();
        if unknown.is_empty() { Ok(()) } else { Err(told()) }
    }

    /// The tests that the matrix names and that are none of their target's. If a program wrote into the lines of a target, not all of
    /// its tests are known, and nothing is said of them.
    fn unknown(&self, rows: &[Row]) -> Vec<String> {
        let known = |target: &String| self.tests.get(target).map_or(0, BTreeSet::len);
        let all_known = |target: &String| self.counts.get(target).is_some_and(|count| *count == known(target));
        let of_shows = |shows: &Shows| {
            let tests = shows.columns.iter().flat_map(|column| shows.source.tests(*column));
            tests.collect::<Vec<_>>()
        };
        let all: BTreeSet<_> = rows.iter().flat_map(|row| &row.shows).flat_map(of_shows).collect();
        let unknown =
            all.into_iter().filter(|test| all_known(&test.0) && !self.has(test) && !test.1.contains(THOROUGH));
        unknown.map(|(target, name)| format!("{target}: {name}")).collect()
    }
}

/// Whether the suite has a case of this store.
fn has_prefix(tests: &BTreeSet<String>, store: &str) -> bool {
    let prefix = format!("{store}: ");
    tests.range(prefix.clone()..).next().is_some_and(|test| test.starts_with(&prefix))
}

fn results() -> PathBuf {
    root().join("target/test-results.json")
}

/// Writes the page.
pub(crate) fn matrix() -> Result {
    let text = fs::read_to_string(results())
        .map_err(|error| format!("{}: {error}; `cargo xtask test` writes it", results().display()))?;
    let run: Value = serde_json::from_str(&text)?;
    let [tests, idle] = ["passed", "idle"].map(|field| serde_json::from_value(run[field].clone()));
    let passed = Passed { tests: tests?, idle: idle?, ..Passed::default() };
    let [commit, date] = ["commit", "date"].map(|field| run[field].as_str().unwrap_or("?"));
    let page = root().join("docs/fault-matrix.md");
    let old = fs::read_to_string(&page)?;
    let (Some((before, _)), Some((_, after))) = (old.split_once(BEGIN), old.split_once(END)) else {
        return Err(format!("{} has no place for the tables", page.display()).into());
    };
    let tables = tables(&rows()?, &passed);
    fs::write(page, format!("{before}{BEGIN}\n\nThe run of {date}, commit `{commit}`.\n\n{tables}\n{END}{after}"))?;
    Ok(())
}

fn tables(rows: &[Row], passed: &Passed) -> String {
    let heads: Vec<_> = Column::ALL.iter().map(|column| column.names().head).collect();
    let mut text = format!("| | fault | {} |\n| --- | --- |{}\n", heads.join(" | "), " --- |".repeat(heads.len()));
    for row in rows {
        let cells: Vec<_> = Column::ALL.iter().map(|column| cell(row, *column, passed)).collect();
        text += &format!("| {} | {} | {} |\n", row.id, row.fault, cells.join(" | "));
    }
    text += "\n## The tests of each row\n\n";
    for row in rows {
        text += &format!("- **{}**\n", row.id);
        for Shows { columns, keeps, source } in &row.shows {
            let names: Vec<_> = columns.iter().map(|column| column.names().head).collect();
            let of = if columns.len() == Column::ALL.len() { "all".to_owned() } else { names.join(", ") };
            text += &format!("  - {of}{}: {}\n", if *keeps { "" } else { ", NO" }, source.words());
        }
    }
    text
}

/// How many tests show that the promise is kept, and whether something shows that it is not.
fn cell(row: &Row, column: Column, passed: &Passed) -> String {
    let shows: Vec<_> = row.shows.iter().filter(|shows| shows.columns.contains(&column)).collect();
    let of = |keeps: bool| shows.iter().filter(move |shows| shows.keeps == keeps).map(|shows| shows.source);
    let tests = of(true).flat_map(|source| source.tests(column)).filter(|test| !passed.is_idle(test));
    let tests: Vec<_> = tests.collect();
    let ran = tests.iter().filter(|test| passed.has(test)).count();
    let mut words = Vec::new();
    if !tests.is_empty() {
        words.push(if ran == tests.len() {
            format!("held, {ran}")
        } else {
            format!("*{ran} of {} passed*", tests.len())
        });
    }
    if of(false).next().is_some() {
        let has_run = of(false).flat_map(|source| source.tests(column)).any(|test| passed.has(&test));
        words.push(if has_run { "**NO**, shown".to_owned() } else { "**NO**, not run".to_owned() });
    }
    if words.is_empty() { "–".to_owned() } else { words.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::{Column, Passed, cell, rows};

    #[test]
    fn a_cell_says_what_ran_and_what_is_not_promised() {
        let rows = rows().unwrap();
        let row = rows.iter().find(|row| row.id == "F44").unwrap();
        let mut passed = Passed::default();
        assert_eq!(cell(row, Column::Redlock, &passed), "*0 of 2 passed*");
        passed.add("redlock store", "test restart::a_forgetful_node_does_not_make_two_holders ... ok");
        passed
            .add("redlock store", "test restart::nodes_that_forget_one_after_another_never_make_two_holders   ... ok");
        assert_eq!(cell(row, Column::Redlock, &passed), "held, 2");
        assert_eq!(cell(row, Column::Etcd, &passed), "–");
        let row = rows.iter().find(|row| row.id == "F30").unwrap();
        assert_eq!(cell(row, Column::Redis, &passed), "*0 of 1 passed*; **NO**, not run");
    }

    #[test]
    fn a_test_that_there_is_not_is_named_if_all_of_its_target_are_known() {
        let mut passed = Passed::default();
        passed.add("sqlite store", "test file::a_file_held_by_a_writer_is_an_outage_and_renewals_recover ... ok");
        passed.add("sqlite store", "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        // One line could not be read.
        assert!(passed.unknown(&rows().unwrap()).iter().all(|unknown| !unknown.starts_with("sqlite store")));
        passed.add("sqlite store", "test another ... ok");
        let unknown = passed.unknown(&rows().unwrap());
        assert!(unknown.iter().any(|unknown| unknown.starts_with("sqlite store: disks::")), "{unknown:?}");
        assert!(!unknown.iter().any(|unknown| unknown.contains("a_file_held")), "{unknown:?}");
    }

    #[test]
    fn a_case_that_says_nothing_of_a_store_is_no_proof() {
        let mut passed = Passed::default();
        for line in [
            "test redlock: a dead waiter does not block the queue    ... ok",
            "test redlock: many owners at once never hold the lock together ... ok",
            "",
            "                                                  redlock",
            "many owners at once never hold the lock together  passed",
            "a dead waiter does not block the queue            -",
        ] {
            passed.add("redlock conformance", line);
        }
        let is_idle = |case: &str| passed.is_idle(&("redlock conformance".to_owned(), format!("redlock: {case}")));
        assert!(is_idle("a dead waiter does not block the queue"));
        assert!(!is_idle("many owners at once never hold the lock together"));
    }

    #[test]
    fn each_row_has_a_number_of_its_own() {
        assert!(rows().unwrap().is_sorted_by(|one, next| one.id < next.id));
    }
}
