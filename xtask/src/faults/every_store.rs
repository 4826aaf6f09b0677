//! `cargo xtask faults --all`: a run on each store, one after another. Each is a row of `docs/reliability.md`, written when it ends, so
//! a call that was stopped goes on where it was.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::program::{install_for, program};
use crate::sh::{Result, read, root};

const PAGE: &str = "docs/reliability.md";
const BEGIN: &str = "<!-- Written by cargo xtask faults --all: begin -->";
const END: &str = "<!-- Written by cargo xtask faults --all: end -->";
const HEAD: &str = "\
| store | date | commit | minutes | seed | faults | grants | fenced writes | doc | broken promises |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

/// A run on one store: the cells of its row, without the store.
type Row = [String; 9];

/// The words are `[--minutes N] [--seed S]`. Without a seed, each run draws its own.
pub(super) fn run_all(words: &[&str]) -> Result {
    let (mut minutes, mut seed) = ("1", None);
    for pair in words.chunks(2) {
        match *pair {
            ["--minutes", number] if number.parse::<f64>().is_ok_and(|minutes| minutes > 0.0) => minutes = number,
            ["--seed", number] if number.parse::<u64>().is_ok() => seed = Some(number),
            _ => return Err(format!("`--all {}`: the words are [--minutes N] [--seed S]", words.join(" ")).into()),
        }
    }
    let [commit, date] = [
        read(Command::new("git").args(["rev-parse", "--short=8", "HEAD"]))?,
        read(Command::new("date").args(["-u", "+%F"]))?,
    ]
    .map(|text| text.trim().to_owned());
    let mut broken = Vec::new();
    for store in read(&mut program(&["--stores"]))?.lines() {
        let is_done = |row: &Row| {
            row[1] == commit && row[2] == minutes && seed.is_none_or(|seed| row[3] == seed) && row[8] == "0"
        };
        if row_of(store)?.is_some_and(|row| is_done(&row)) {
            println!("{store}: done, for {minutes} min on {commit}");
            continue;
        }
        install_for(store)?;
        let figures = figures_of(store, minutes, seed)?;
        if figures[5] != "0" {
            broken.push(format!("{store} (seed {})", figures[0]));
        }
        let [seed, faults, grants, writes, documented, promises] = figures;
        let row =
            [date.clone(), commit.clone(), minutes.to_owned(), seed, faults, grants, writes, documented, promises];
        write(store, &row)?;
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("broken promises: {}", broken.join(", ")).into()) }
}

/// Runs the program, and reads the seed and the five counts from its lines.
fn figures_of(store: &str, minutes: &str, seed: Option<&str>) -> Result<[String; 6]> {
    let seed: Vec<_> = seed.iter().flat_map(|seed| ["--seed", seed]).collect();
    let words = [&["--store", store, "--minutes", minutes], &seed[..]].concat();
    let mut run = program(&words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let (mut drawn, mut counts) = (None, None);
    for line in BufReader::new(run.stdout.take().ok_or("no output")?).lines() {
        let line = line?;
        println!("{line}");
        drawn = drawn.or_else(|| seed_in(&line));
        counts = counts.or_else(|| counts_in(&line));
    }
    let ended = run.wait()?;
    let (Some(seed), Some([faults, grants, writes, documented, promises])) = (drawn, counts) else {
        return Err(format!("the run on {store} ended with {ended}, and judged nothing").into());
    };
    Ok([seed, faults, grants, writes, documented, promises])
}

/// In `redis: seed 7, 60 s`.
fn seed_in(line: &str) -> Option<String> {
    let (seed, _) = line.split_once(": seed ")?.1.split_once(", ")?;
    Some(seed.to_owned())
}

/// In `9 faults, 8 grants, 7 fenced writes, 6 documented losses (doc), 0 broken promises`.
fn counts_in(line: &str) -> Option<[String; 5]> {
    let parts: Vec<_> = line.split(", ").collect();
    let of = |part: usize, word: &str| Some(parts.get(part)?.strip_suffix(word)?.trim().to_owned());
    Some([
        of(0, "faults")?,
        of(1, "grants")?,
        of(2, "fenced writes")?,
        of(3, "documented losses (doc)")?,
        of(4, "broken promises")?,
    ])
}

/// The table of the page, with what stands before and behind it.
fn page() -> Result<[String; 3]> {
    let text = fs::read_to_string(root().join(PAGE))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
    let (before, (table, after)) = parts.ok_or_else(|| format!("{PAGE} has no place for the table"))?;
    Ok([before, table, after].map(str::to_owned))
}

/// The rows of a table, with their stores.
fn rows(table: &str) -> Vec<(String, Row)> {
    let cells = |line: &str| line.trim_matches(['|', ' ']).split(" | ").map(str::to_owned).collect::<Vec<_>>();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(HEAD.lines().count()).map(cells);
    rows.filter_map(|mut row| Some((row.remove(0), row.try_into().ok()?))).collect()
}

fn row_of(store: &str) -> Result<Option<Row>> {
    let [_, table, _] = page()?;
    Ok(rows(&table).into_iter().find(|(of, _)| of == store).map(|(_, row)| row))
}

/// Writes the row of a store in the place of its former one.
fn write(store: &str, row: &Row) -> Result {
    let [before, table, after] = page()?;
    let mut rows = rows(&table);
    match rows.iter_mut().find(|(of, _)| of == store) {
        Some((_, former)) => former.clone_from(row),
        None => rows.push((store.to_owned(), row.clone())),
    }
    let lines: String = rows.iter().map(|(store, row)| format!("| {store} | {} |\n", row.join(" | "))).collect();
    Ok(fs::write(root().join(PAGE), format!("{before}{BEGIN}\n\n{HEAD}{lines}\n{END}{after}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_program_are_read() {
        assert_eq!(seed_in("redis: seed 7, 60 s").unwrap(), "7");
        let counts = counts_in("9 faults, 8 grants, 7 fenced writes, 6 documented losses (doc), 0 broken promises");
        assert_eq!(counts.unwrap().join(" "), "9 8 7 6 0");
        assert_eq!(counts_in("  1.250 s  Cut: process 2 for 1 s, 3 grants"), None);
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let row: Row = ["2026-11-29", "12345678", "1", "7", "9", "8", "7", "6", "0"].map(str::to_owned);
        let table = format!("\n\n{HEAD}| redis | {} |\n\n", row.join(" | "));
        assert_eq!(rows(&table), [("redis".to_owned(), row)]);
    }
}
