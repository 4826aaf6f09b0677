//! One file that several processes rewrite, and no line is lost.
//!
//! `cargo run --example shared_file`
//!
//! The first line says how many follow, so to add a line is to read the file and to write it anew: two processes that
//! do so at once lose a line. The function is not async, as most code about files is not; the lock is the same.
//! The program counts the lines and exits with an error if one is missing or was written twice.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use common::{Failure, Job, Stage, ensure, finish, together};
use dlock::distributed_lock;

const PROCESSES: u32 = 3;
const THREADS: u32 = 2;
const LINES: u32 = 20;

/// Adds a line to a file that others rewrite too. All of them must name it in the same way, since that is the key.
#[distributed_lock(key = "file:<name>", ttl = "10s", wait = "30s", guard = held)]
fn add_line(folder: &Path, name: &str, line: &str) -> Result<(), Failure> {
    let file = folder.join(name);
    let mut lines = read(&file)?;
    lines.push(line.to_owned());
    // Half a file is never seen: it is written beside the old one, and takes its place when it is whole.
    let beside = file.with_extension("new");
    fs::write(&beside, format!("{} lines\n{}\n", lines.len(), lines.join("\n")))?;
    // A thread cannot be stopped as a future can. So a function that is not async asks before what it cannot undo.
    held.check()?;
    Ok(fs::rename(beside, file)?)
}

/// The lines after the first, which must say how many they are.
fn read(file: &Path) -> Result<Vec<String>, Failure> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let mut lines = text.lines().map(str::to_owned);
    let said = lines.next().unwrap_or_default();
    let lines: Vec<String> = lines.collect();
    ensure(said == format!("{} lines", lines.len()), || format!("{said:?} stands above {} lines", lines.len()))?;
    Ok(lines)
}

/// A process with some threads that add lines.
async fn worker(job: &mut Job) -> Result<(), Failure> {
    let process: u32 = job.word(0)?;
    job.ready().await?;
    let mut threads = tokio::task::JoinSet::new();
    for thread in 1..=THREADS {
        let folder: PathBuf = job.folder.clone();
        threads.spawn_blocking(move || {
            (1..=LINES).try_for_each(|n| add_line(&folder, "report.txt", &format!("line {n} of {process}.{thread}")))
        });
    }
    while let Some(ended) = threads.join_next().await {
        ended??;
    }
    Ok(())
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let mut workers = stage.start_all(PROCESSES)?;
    together(&mut workers).await?;
    finish(workers).await?;

    let lines = read(&stage.file("report.txt"))?;
    let different: BTreeSet<&String> = lines.iter().collect();
    let all = (PROCESSES * THREADS * LINES) as usize;
    println!(
        "{PROCESSES} processes with {THREADS} threads each have added {} lines, {} of them different.",
        lines.len(),
        different.len()
    );
    ensure(lines.len() == all && different.len() == all, || format!("{all} different lines were added"))
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
