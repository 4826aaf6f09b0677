//! Shared code of the examples: a program starts itself again as workers, which all use one store.
//!
//! `main` is the parent or a worker. The parent has a [`Stage`] and starts [`Worker`]s; a worker has a [`Job`]. They
//! talk by lines: the worker's output, the parent's orders. How to write a service is in the examples; this is not.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to the person who runs it")]
#![allow(dead_code, unused_imports, reason = "no example needs all of it")]

mod args;
mod database;
mod job;
mod worker;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

pub(crate) use args::Args;
pub(crate) use database::database;
pub(crate) use job::{Job, say, take as job};
pub(crate) use worker::{Worker, finish, together};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Longer than any example takes, also on a machine that is busy with others.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs this process's part: `worker` if a parent has started it, else `parent`.
pub(crate) fn main(
    parent: impl AsyncFnOnce(&Stage) -> Result<(), Failure>,
    worker: impl AsyncFnOnce(&mut Job) -> Result<(), Failure>,
) -> ExitCode {
    let result = match job::take() {
        Some(mut job) => run(async || {
            connect(&job.url, &job.namespace).await?;
            worker(&mut job).await
        }),
        None => match args::parse(std::env::args().skip(1)) {
            Ok(args) => run(async || {
                let stage = Stage::new(args)?;
                connect(&stage.url, &stage.namespace).await?;
                parent(&stage).await
            }),
            Err(text) => {
                eprintln!("{text}\n\n{}", args::USAGE);
                return ExitCode::from(2);
            }
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn run(part: impl AsyncFnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    // Workers are killed and the folder is removed on every way out.
    let result = tokio::select! {
        biased;
        interrupt = tokio::signal::ctrl_c() => interrupt.map_err(Failure::from).and(Err("interrupted".into())),
        result = tokio::time::timeout(PATIENCE, part()) => result.unwrap_or_else(|_| Err("it does not end".into())),
    };
    dlock::shutdown(Duration::from_secs(1)).await;
    result
}

/// The few lines with which a service begins.
pub(crate) async fn connect(url: &str, namespace: &str) -> Result<(), Failure> {
    dlock::configure(|defaults| defaults.namespace = namespace.into())?;
    dlock::connect("main", url).await?;
    dlock::set_default("main")?;
    // Every annotated function of the program, before the first call of any: can the store do what it asks for?
    dlock::verify()?;
    Ok(())
}

/// The parent's view: a folder that is removed at the end, and the store of the locks.
#[derive(Debug)]
pub(crate) struct Stage {
    folder: tempfile::TempDir,
    url: String,
    namespace: String,
    unlocked: bool,
}

impl Stage {
    pub(crate) fn new(args: Args) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("dlock-example-").tempdir()?;
        let url = args.url.unwrap_or_else(|| sqlite_url(&folder.path().join("locks.db")));
        // A store that was here before this run knows nothing of it.
        let name = folder.path().file_name().map(OsString::from).unwrap_or_default();
        let namespace = name.to_string_lossy().into_owned();
        Ok(Self { folder, url, namespace, unlocked: args.unlocked })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the locks are.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Shall the example show that it would find a broken promise?
    pub(crate) const fn unlocked(&self) -> bool {
        self.unlocked
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }
}

fn sqlite_url(file: &Path) -> String {
    // These two mean something in a URL.
    format!("sqlite://{}", file.display().to_string().replace('%', "%25").replace('?', "%3F"))
}

/// An example's own check: what must be true, or the program ends with an error.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(otherwise().into()) }
}
