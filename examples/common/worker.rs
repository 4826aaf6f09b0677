//! A worker, seen from the parent: start it, order it about, hear what it says, stop or kill it.

use std::fmt::Display;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::{Failure, Stage, job};

/// Longer than any worker is silent when its parent waits for a line, also on a machine that is busy with others.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    name: String,
    process: Child,
    /// Open as long as we live: its end tells the worker that we are gone.
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    last_line: String,
}

impl Stage {
    /// Starts this program again as a worker with these words.
    pub(crate) fn start(&self, words: &[&dyn Display]) -> Result<Worker, Failure> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let name = words.join(" ");
        // With names of its own, a worker's locks exclude nobody else's.
        let apart = if self.unlocked { format!(".{}", fastrand::u64(..)) } else { String::new() };
        let mut process = Command::new(std::env::current_exe()?)
            .args(words)
            .env(job::FOLDER, self.folder())
            .env(job::URL, &self.url)
            .env(job::NAMESPACE, format!("{}{apart}", self.namespace))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(orders), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a worker has no pipes".into());
        };
        Ok(Worker { name, process, orders, lines: BufReader::new(output).lines(), last_line: String::new() })
    }

    /// Starts so many workers; the first word of each is its number, from one.
    pub(crate) fn start_all(&self, count: u32) -> Result<Vec<Worker>, Failure> {
        (1..=count).map(|number| self.start(&[&number])).collect()
    }
}

impl Worker {
    /// The next line that it says.
    pub(crate) async fn line(&mut self) -> Result<String, Failure> {
        match timeout(PATIENCE, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => {
                self.last_line.clone_from(&line);
                Ok(line)
            }
            Ok(Ok(None)) => Err(format!("worker {} ended with {}", self.name, self.process.wait().await?).into()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(format!("worker {} says no more than {:?}", self.name, self.last_line).into()),
        }
    }

    /// Waits for a line that starts so, and gives the rest of it; lines before it are skipped.
    pub(crate) async fn hear(&mut self, start: &str) -> Result<String, Failure> {
        loop {
            if let Some(rest) = self.line().await?.strip_prefix(start) {
                return Ok(rest.trim().to_owned());
            }
        }
    }

    pub(crate) async fn order(&mut self, line: impl Display) -> Result<(), Failure> {
        Ok(self.orders.write_all(format!("{line}\n").as_bytes()).await?)
    }

    /// The remaining lines of its output. Waits for its end; an exit code other than zero is an error.
    pub(crate) async fn end(mut self) -> Result<Vec<String>, Failure> {
        let mut said = Vec::new();
        while let Some(line) = self.lines.next_line().await? {
            said.push(line);
        }
        let status = self.process.wait().await?;
        if status.success() { Ok(said) } else { Err(format!("worker {} ended with {status}", self.name).into()) }
    }

    /// `kill -9`: it can do nothing more, not even release.
    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.process.kill().await?)
    }

    /// Freezes it where it stands, as a long pause of its machine would. Returns once it stands: on another core it runs
    /// on for a moment after the signal, long enough for one more write.
    pub(crate) async fn pause(&self) -> Result<(), Failure> {
        self.signal(Signal::STOP)?;
        while waitid(WaitId::Pid(self.pid()?), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)?.is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Lets it go on after a pause, as if nothing had been.
    pub(crate) fn resume(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    fn pid(&self) -> Result<Pid, Failure> {
        let pid = self.process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        pid.ok_or_else(|| "a worker has ended too early".into())
    }
}

/// Lets all of them begin at once: none may be done before the others have begun.
pub(crate) async fn together(workers: &mut [Worker]) -> Result<(), Failure> {
    for worker in workers.iter_mut() {
        worker.hear("ready").await?;
    }
    for worker in workers {
        worker.order("go").await?;
    }
    Ok(())
}

/// The remaining lines of each worker. Waits for the end of all.
pub(crate) async fn finish(workers: Vec<Worker>) -> Result<Vec<Vec<String>>, Failure> {
    futures::future::try_join_all(workers.into_iter().map(Worker::end)).await
}
