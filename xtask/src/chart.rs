//! `cargo xtask bench --chart`: the table of `docs/performance.md` as a picture, dlock beside floors and peers.

use std::fmt::Write as _;
use std::fs;

use crate::sh::{Result, root};

const TABLE: &str = "docs/performance.md";
const PICTURE: &str = "docs/pictures/performance.svg";

/// The contenders that are libraries of others, or the recipe that their users write. All but these and dlock are floors.
const PEERS: [&str; 5] = ["rslock", "python-redis-lock", "etcd-mutex", "plain recipe", "keyed async mutex"];

/// For hand-overs: this column has the floor, which runs alone.
const ALONE: &str = "hold and one round trip alone, /s";

/// The pixels of 1.0, the floor of a row.
const UNIT: f64 = 280.0;
/// A bar that is longer ends here, and its number says the rest.
const LONGEST: f64 = 1.6;
const LEFT: f64 = 190.0;
const BAR: f64 = 11.0;
const GAP: f64 = 13.0;

/// Draws the picture anew.
pub(crate) fn chart() -> Result {
    let table = fs::read_to_string(root().join(TABLE))?;
    Ok(fs::write(root().join(PICTURE), picture(&rows(&table)))?)
}

/// A row of the benchmark, with the speed of each contender in parts of the floor's.
struct Row {
    name: String,
    bars: Vec<(String, f64)>,
}

/// The rows that compare speeds.
fn rows(table: &str) -> Vec<Row> {
    table.split("\n### ").skip(1).filter_map(row).collect()
}

fn row(section: &str) -> Option<Row> {
    let mut lines = section.lines();
    let name = lines.next()?.to_owned();
    let mut cells = lines
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>());
    let head = cells.next()?;
    let unit = head.get(1)?;
    if !unit.starts_with("cycles/s") && unit != "hand-overs/s" {
        return None;
    }
    let table: Vec<_> = cells.skip(1).collect();
    let speed = |row: &Vec<String>, column: usize| row.get(column)?.parse::<f64>().ok();
    let contenders: Vec<_> = table.iter().filter_map(|row| Some((row.first()?.clone(), speed(row, 1)?))).collect();
    let alone = head.iter().position(|cell| cell == ALONE).and_then(|column| speed(table.first()?, column));
    let is_compared = alone.is_some() || contenders.len() > 1;
    if !is_compared || !contenders.iter().any(|(name, _)| name.starts_with("dlock")) {
        return None;
    }
    let floor = alone.or_else(|| contenders.first().map(|(_, speed)| *speed))?;
    let all = alone.map(|alone| ("hold and one round trip".to_owned(), alone)).into_iter().chain(contenders);
    Some(Row { name, bars: all.map(|(name, speed)| (name, speed / floor)).collect() })
}

fn picture(rows: &[Row]) -> String {
    let bars: usize = rows.iter().map(|row| row.bars.len()).sum();
    let height = 60.0 + bars as f64 * BAR + rows.len() as f64 * GAP;
    let width = LEFT + UNIT * LONGEST + 210.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>Locks per second of dlock, of floors and of peers, as parts of the floor</title>\n{STYLE}"
    );
    let line = LEFT + UNIT;
    for (at, class, name) in
        [(LEFT, "dlock", "dlock"), (LEFT + 80.0, "floor", "a floor: raw requests"), (LEFT + 240.0, "peer", "a peer")]
    {
        let (words, y) = (at + 15.0, 14);
        let _ = writeln!(
            text,
            "<rect x=\"{at}\" y=\"{y}\" width=\"10\" height=\"10\" class=\"{class}\"/><text x=\"{words}\" y=\"23\">{name}</text>"
        );
    }
    let _ = writeln!(text, "<path class=\"line\" d=\"M{line} 36 {line} {}\"/>", height - 16.0);
    let mut y = 44.0;
    for Row { name, bars } in rows {
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{:.0}\" text-anchor=\"end\" class=\"head\">{name}</text>",
            LEFT - 8.0,
            y + BAR
        );
        for (contender, speed) in bars {
            let long = speed.min(LONGEST) * UNIT;
            let class = class(contender);
            let words = if class == "dlock" && !contender.contains(',') {
                String::new()
            } else {
                format!(" {}", escaped(contender))
            };
            let _ = writeln!(
                text,
                "<rect x=\"{LEFT}\" y=\"{y:.0}\" width=\"{long:.0}\" height=\"{:.0}\" class=\"{class}\"/>\
                 <text x=\"{:.0}\" y=\"{:.0}\" class=\"small\">{speed:.2}{words}</text>",
                BAR - 1.0,
                LEFT + long + 5.0,
                y + BAR - 2.0,
            );
            y += BAR;
        }
        y += GAP;
    }
    text + "</svg>\n"
}

fn class(contender: &str) -> &'static str {
    if contender.starts_with("dlock") {
        "dlock"
    } else if PEERS.contains(&contender) {
        "peer"
    } else {
        "floor"
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

const STYLE: &str = "<style>
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .small { font-size: 9.5px; fill: #57606a; } .head { font-weight: 600; }
  .line { stroke: #57606a; stroke-dasharray: 3 3; fill: none; }
  .dlock { fill: #0969da; } .floor { fill: #afb8c1; } .peer { fill: #d4a72c; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #9198a1; } .line { stroke: #9198a1; }
    .dlock { fill: #54aeff; } .floor { fill: #57606a; }
  }
</style>
";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{PICTURE, TABLE, picture, rows};
    use crate::sh::root;

    #[test]
    fn the_picture_is_that_of_the_table() {
        let table = fs::read_to_string(root().join(TABLE)).unwrap();
        let drawn = fs::read_to_string(root().join(PICTURE)).unwrap();
        assert!(
            drawn == picture(&rows(&table)),
            "{PICTURE} is not that of {TABLE}: `cargo xtask bench --chart` draws it"
        );
    }

    #[test]
    fn speeds_are_parts_of_the_floor() {
        let table = "# Page\n\n### one\n\nText.\n\n| contender | cycles/s | p50 |\n| --- | --- | --- |\n| raw | 200 | 1 |\n| dlock | 150 | 2 |\n\
                     \n### two\n\n| contender | hand-overs/s | hold and one round trip alone, /s |\n| --- | --- | --- |\n| dlock | 90 | 100.0 |\n\
                     \n### three\n\n| contender | MB |\n| --- | --- |\n| dlock | 3 |\n";
        let rows = rows(table);
        let speeds: Vec<_> =
            rows.iter().map(|row| (&*row.name, row.bars.iter().map(|bar| bar.1).collect::<Vec<_>>())).collect();
        assert_eq!(speeds, [("one", vec![1.0, 0.75]), ("two", vec![1.0, 0.9])]);
        assert!(picture(&rows).contains("0.75"));
    }
}
