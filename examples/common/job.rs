//! A worker, seen from inside: this program once more, with a job in its environment.

use std::env;
use std::fmt::Display;
use std::io::{self, BufRead};
use std::path::PathBuf;

use tokio::sync::mpsc;

use super::Failure;

/// A URL may hold a password, and arguments can be read by everyone; so they come in variables.
pub(super) const URL: &str = "DLOCK_EXAMPLE_URL";
pub(super) const NAMESPACE: &str = "DLOCK_EXAMPLE_NAMESPACE";
pub(super) const FOLDER: &str = "DLOCK_EXAMPLE_FOLDER";

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) folder: PathBuf,
    /// The command-line arguments of the worker.
    words: Vec<String>,
    pub(crate) url: String,
    pub(crate) namespace: String,
    orders: mpsc::UnboundedReceiver<String>,
}

/// The job of this process if it is a worker; `None` in the parent.
pub(crate) fn take() -> Option<Job> {
    let folder = env::var_os(FOLDER)?.into();
    let (url, namespace) = (env::var(URL).ok()?, env::var(NAMESPACE).ok()?);
    // One that is paused cannot see that the parent is gone; the kernel does.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    Some(Job { folder, words: env::args().skip(1).collect(), url, namespace, orders: orders() })
}

impl Job {
    /// The word at this place, as whatever it is.
    pub(crate) fn word<T: std::str::FromStr>(&self, place: usize) -> Result<T, Failure> {
        let word = self.words.get(place).and_then(|word| word.parse().ok());
        word.ok_or_else(|| format!("word {place} of this worker is missing or wrong").into())
    }

    /// Says that it is ready, and waits until all are; see [`together`](super::together).
    pub(crate) async fn ready(&mut self) -> Result<(), Failure> {
        say("ready");
        self.order().await.map(drop)
    }

    /// The parent's next line.
    pub(crate) async fn order(&mut self) -> Result<String, Failure> {
        self.orders.recv().await.ok_or_else(|| "the parent is gone".into())
    }
}

/// Tells the parent; the output is flushed with each line.
pub(crate) fn say(line: impl Display) {
    println!("{line}");
}

/// The lines that the parent writes. If the parent ends, this process exits too.
fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            // A receiver that is gone means that the work has ended already.
            let _ = sender.send(line);
        }
        std::process::exit(1);
    });
    orders
}
