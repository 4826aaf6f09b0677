//! Output: a table for people, JSON for programs. A reader that closes its pipe ends the program without a complaint.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comfy_table::{Table, presets};
use dlock::Note;
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// A line on standard error.
pub(crate) fn note(text: &str) {
    let text: Vec<_> = text.split('\n').map(visible).collect();
    let _ = writeln!(io::stderr(), "dlock: {}", text.join("\n"));
}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.map_err(|error| Failure::new(Exit::INTERNAL, format!("standard output: {error}"))),
    }
}

/// Writes JSON to standard output.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(Exit::INTERNAL, error.to_string()))?;
    print(&format!("{text}\n"))
}

/// A key as a word of the shell.
pub(crate) fn quoted(key: &str) -> String {
    format!("'{}'", key.replace('\'', r"'\''"))
}

/// Writes a table, each row in one line. Where the terminal is narrower, each row is a paragraph: a hold id in pieces cannot be
/// pasted.
pub(crate) fn print_table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Result<(), Failure> {
    let rows: Vec<Vec<_>> = rows.into_iter().map(|row| row.iter().map(|cell| visible(cell)).collect()).collect();
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(head.to_vec()).add_rows(&rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text = table.trim_fmt();
    let width = table.width().filter(|_| io::stdout().is_terminal()).map_or(usize::MAX, usize::from);
    let fits = text.lines().all(|line| line.chars().count() <= width);
    print(&if fits { format!("{text}\n") } else { paragraphs(head, &rows) })
}

fn paragraphs(head: &[&str], rows: &[Vec<String>]) -> String {
    let paragraph = |row: &Vec<String>| {
        let lines = head.iter().zip(row).skip(1).filter(|(_, cell)| !cell.is_empty());
        let lines: String = lines.map(|(name, cell)| format!("  {:<11} {cell}\n", name.to_lowercase())).collect();
        format!("{}\n{lines}", row.first().map_or("", String::as_str))
    };
    rows.iter().map(paragraph).collect()
}

/// A note or a key of somebody else must not steer the terminal.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A duration as a person reads it: its two largest units, and no milliseconds above ten seconds.
pub(crate) fn words(length: Duration) -> String {
    let length = match length {
        short if short < Duration::from_secs(10) => {
            Duration::from_millis(u64::try_from(short.as_millis()).unwrap_or(u64::MAX))
        }
        long => Duration::from_secs(long.as_secs()),
    };
    let text = humantime::format_duration(length).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// The time since a moment of the wall clock; zero for one to come.
pub(crate) fn since(unix_ms: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(unix_ms))
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A holder in one line: host and process, function, since when.
pub(crate) fn holder(note: &Note) -> String {
    let function = note.site().map(|function| format!(", {}", visible(function))).unwrap_or_default();
    let held = note.since_ms().map(|at| format!(", for {}", words(since(at)))).unwrap_or_default();
    format!("{}{function}{held}", visible(&note.place()))
}

/// A moment as text, in UTC.
pub(crate) fn moment(unix_ms: u64) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms));
    time.map(|time| humantime::format_rfc3339_seconds(time).to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::paragraphs;

    #[test]
    fn a_row_that_is_too_long_for_its_terminal_is_a_paragraph() {
        let row = ["stock:<42>", "web-3:17", "", "0123456789abcdef"].map(str::to_owned).to_vec();
        let text = paragraphs(&["KEY", "HOLDER", "FUNCTION", "HOLD"], &[row]);
        assert_eq!(text, "stock:<42>\n  holder      web-3:17\n  hold        0123456789abcdef\n");
        assert!(text.lines().all(|line| line.len() <= 40));
    }
}
