//! A worker process: it lets all of its buyers in at once and tells how each visit ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::Failure;
use crate::buyer::{Visit, visit_locked, visit_unlocked};
use crate::common::{Job, connect, say};
use crate::shop::Shop;

#[tokio::main(worker_threads = 2)]
pub(crate) async fn work(mut job: Job) -> Result<(), Failure> {
    let (file, locked): (String, bool) = (job.word(0)?, job.word(1)?);
    let (first, end): (u32, u32) = (job.word(2)?, job.word(3)?);
    let shop = Shop::open(&job.folder.join(file)).await?;
    if locked {
        connect(&job.url, &job.namespace).await?;
    }
    // All buyers stand at the door before it opens.
    let buyers = first..end;
    let door = Arc::new(Barrier::new(buyers.len() + 1));
    let mut visits = JoinSet::new();
    for buyer in buyers {
        let (shop, door) = (shop.clone(), door.clone());
        visits.spawn(async move {
            door.wait().await;
            if locked { visit_locked(&shop, buyer).await } else { visit_unlocked(&shop, buyer).await }
        });
    }
    job.ready().await?;
    door.wait().await;
    while let Some(visit) = visits.join_next().await {
        let (visit, waited) = visit??;
        say(to_line(visit, waited));
    }
    dlock::shutdown(Duration::from_secs(5)).await;
    Ok(())
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
