//! A worker process: this program once more, with a job in its environment.
//!
//! It says `ready`, waits for a line, lets all of its buyers in at once and tells how each visit ended.

use std::env;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Barrier, oneshot};
use tokio::task::JoinSet;

use crate::Failure;
use crate::buyer::{Visit, visit_locked, visit_unlocked};
use crate::shop::Shop;

/// The variables by which a worker knows what to do. A URL may hold a password, and arguments can be read by everyone.
pub(crate) const SHOP: &str = "FLASH_SALE_SHOP";
pub(crate) const BUYERS: &str = "FLASH_SALE_BUYERS";
pub(crate) const URL: &str = "FLASH_SALE_URL";

pub(crate) struct Job {
    shop: PathBuf,
    /// Their numbers.
    buyers: Range<u32>,
    /// Where the lock is, if there is one.
    url: Option<String>,
}

/// What this process is to do as a worker; `None` in the parent.
pub(crate) fn job() -> Option<Job> {
    let shop = env::var_os(SHOP)?.into();
    let numbers = env::var(BUYERS).ok()?;
    let (first, end) = numbers.split_once("..")?;
    let buyers = first.parse().ok()?..end.parse().ok()?;
    Some(Job { shop, buyers, url: env::var(URL).ok() })
}

pub(crate) fn main(job: Job) -> ExitCode {
    match work(job) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("a worker failed: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn work(job: Job) -> Result<(), Failure> {
    let shop = Shop::open(&job.shop).await?;
    let locked = job.url.is_some();
    if let Some(url) = job.url {
        dlock::configure(|defaults| defaults.namespace = "flash-sale".into())?;
        dlock::connect("main", &url).await?;
    }
    // All buyers stand at the door before it opens.
    let door = Arc::new(Barrier::new(job.buyers.len() + 1));
    let mut buyers = JoinSet::new();
    for buyer in job.buyers {
        let (shop, door) = (shop.clone(), door.clone());
        buyers.spawn(async move {
            door.wait().await;
            if locked { visit_locked(&shop, buyer).await } else { visit_unlocked(&shop, buyer).await }
        });
    }
    say("ready")?;
    parent_says_go().await?;
    door.wait().await;
    while let Some(visit) = buyers.join_next().await {
        let (visit, waited) = visit??;
        say(&to_line(visit, waited))?;
    }
    dlock::shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// Waits for the parent's word. Should the parent end, however it ends, so does this process.
async fn parent_says_go() -> Result<(), Failure> {
    let (go, gone) = oneshot::channel();
    std::thread::spawn(move || {
        let mut lines = io::stdin().lock().lines();
        if let Some(Ok(_)) = lines.next() {
            // A receiver that is gone means that the work has failed already.
            let _ = go.send(());
            while let Some(Ok(_)) = lines.next() {}
        }
        std::process::exit(1);
    });
    Ok(gone.await?)
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

const WORDS: [(Visit, &str); 3] =
    [(Visit::Bought, "bought"), (Visit::SoldOut, "sold-out"), (Visit::TimedOut, "timed-out")];

/// How a visit ended, and how many microseconds the buyer had waited for the lock.
fn to_line(visit: Visit, waited: Duration) -> String {
    let word = WORDS.iter().find(|(known, _)| *known == visit).map_or("?", |(_, word)| word);
    format!("{word} {}", waited.as_micros())
}

pub(crate) fn from_line(line: &str) -> Option<(Visit, Duration)> {
    let (word, waited) = line.split_once(' ')?;
    let (visit, _) = WORDS.iter().find(|(_, known)| *known == word)?;
    Some((*visit, Duration::from_micros(waited.parse().ok()?)))
}
