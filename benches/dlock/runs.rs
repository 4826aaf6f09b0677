//! A row in processes of its own: memory and connections of one row are no part of the next, and the middle of several runs is
//! what counts.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::Failed;
use crate::table::{Aim, Contender, Row, median};

/// Names the row that this process measures. It writes it to its standard output.
pub(crate) const ONE: &str = "DLOCK_BENCH_ROW";

/// The middle of so many runs of a row.
pub(crate) fn middle_of(name: &str, runs: usize) -> Result<Row, Failed> {
    let rows: Vec<Row> = (0..runs).map(|_| run(name)).collect::<Result<_, _>>()?;
    let Some(first) = rows.first() else { return Err("no run".into()) };
    let figure = |contender: &Contender, name| rows.iter().map(|row| row.figure(&contender.name, name)).collect();
    let contenders = first.contenders.iter().map(|contender| Contender {
        name: contender.name.clone(),
        figures: contender.figures.iter().map(|(name, _)| (*name, median(figure(contender, name)))).collect(),
    });
    let aims = (0..first.aims.len()).map(|index| {
        let mut of_runs: Vec<&Aim> = rows.iter().filter_map(|row| row.aims.get(index)).collect();
        of_runs.sort_by(|one, other| one.measured.total_cmp(&other.measured));
        let middle = of_runs[of_runs.len() / 2];
        let spread = (runs > 1).then(|| (of_runs[0].measured, of_runs[of_runs.len() - 1].measured));
        Aim { spread, ..middle.clone() }
    });
    Ok(Row {
        name: name.to_owned(),
        about: first.about.clone(),
        contenders: contenders.collect(),
        aims: aims.collect(),
    })
}

/// One run, by this program once more.
fn run(name: &str) -> Result<Row, Failed> {
    let mut child = Command::new(std::env::current_exe()?);
    let output = child.env(ONE, name).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("its run ended with {}", output.status).into());
    }
    read(&serde_json::from_slice(&output.stdout)?).ok_or_else(|| "its run wrote no row".into())
}

/// The row as a run writes it, for [`read`].
pub(crate) fn written(row: &Row) -> Value {
    let contenders: Vec<_> =
        row.contenders.iter().map(|contender| json!([contender.name, contender.figures])).collect();
    let aims: Vec<_> = row.aims.iter().map(|aim| json!([aim.text, aim.measured, aim.reached])).collect();
    json!({ "name": row.name, "about": row.about, "contenders": contenders, "aims": aims })
}

fn read(row: &Value) -> Option<Row> {
    let text = |value: &Value| Some(value.as_str()?.to_owned());
    // JSON has no number for what was not measured.
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let contenders = row["contenders"].as_array()?.iter().map(|contender| {
        let figures = contender[1].as_array()?.iter();
        // The names of columns are constants elsewhere. The few of one row may stay for good.
        let figures = figures.map(|figure| Some((&*text(&figure[0])?.leak(), number(&figure[1]))));
        Some(Contender { name: text(&contender[0])?, figures: figures.collect::<Option<_>>()? })
    });
    let aims = row["aims"].as_array()?.iter().map(|aim| {
        Some(Aim { text: text(&aim[0])?, measured: number(&aim[1]), reached: aim[2].as_bool()?, spread: None })
    });
    Some(Row {
        name: text(&row["name"])?,
        about: text(&row["about"])?,
        contenders: contenders.collect::<Option<_>>()?,
        aims: aims.collect::<Option<_>>()?,
    })
}
