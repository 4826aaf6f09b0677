//! A configuration that is rolled out while it is in use: readers beside each other, a writer alone.
//!
//! `cargo run --example rollout`
//!
//! The configuration is two files, which belong together. Two processes want to apply each new version, and one of them
//! does. Two others load the configuration all the time, under a read lock: they do not wait for each other, and never
//! see one file of the new version and one of the old. The program exits with an error if they do, or if a version was
//! applied twice or not at all.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{Failure, Job, Stage, ensure, finish, say, together};
use dlock::distributed_lock;

const FILES: [&str; 2] = ["routes.conf", "limits.conf"];
const LAST: u32 = 8;

/// Applies a version, unless somebody else has done so; says whether.
#[distributed_lock(key = "config", mode = write, ttl = "30s", wait = "30s")]
async fn apply(folder: &Path, version: u32) -> Result<bool, Failure> {
    if read(folder, FILES[0])? >= version {
        return Ok(false);
    }
    for file in FILES {
        fs::write(folder.join(file), version.to_string())?;
        // Here the configuration is neither the old one nor the new one.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(true)
}

/// Loads the configuration, both files of one version.
#[distributed_lock(key = "config", mode = read, ttl = "30s", wait = "30s")]
async fn load(folder: &Path) -> Result<u32, Failure> {
    let routes = read(folder, FILES[0])?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let limits = read(folder, FILES[1])?;
    ensure(routes == limits, || format!("the routes are of version {routes}, and the limits of version {limits}"))?;
    Ok(routes)
}

fn read(folder: &Path, file: &str) -> Result<u32, Failure> {
    Ok(fs::read_to_string(folder.join(file))?.parse()?)
}

async fn worker(job: &mut Job) -> Result<(), Failure> {
    let role: String = job.word(0)?;
    job.ready().await?;
    if role == "deploy" {
        for version in 1..=LAST {
            if apply(&job.folder, version).await? {
                say(format!("applied {version}"));
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        return Ok(());
    }
    let mut seen = 0;
    while seen < LAST {
        let version = load(&job.folder).await?;
        ensure(version >= seen, || format!("version {version} came after {seen}"))?;
        seen = version;
        say(format!("loaded {version}"));
    }
    Ok(())
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    for file in FILES {
        fs::write(stage.file(file), "0")?;
    }
    let mut workers = Vec::new();
    for role in ["deploy", "deploy", "serve", "serve"] {
        workers.push(stage.start(&[&role])?);
    }
    together(&mut workers).await?;
    let said = finish(workers).await?.concat();

    let loads = said.iter().filter(|line| line.starts_with("loaded")).count();
    let mut applied: Vec<u32> = said.iter().filter_map(|line| line.strip_prefix("applied ")?.parse().ok()).collect();
    applied.sort_unstable();
    println!("Versions {applied:?} were applied; {loads} loads found both files of one version.");
    ensure(applied.into_iter().eq(1..=LAST), || format!("each of {LAST} versions should be applied once"))
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
