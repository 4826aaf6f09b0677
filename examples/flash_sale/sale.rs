//! One sale, seen from the parent: start the workers, open all doors at once, gather what they tell.

use std::time::{Duration, Instant};

use futures::future::try_join_all;

use crate::Failure;
use crate::args::Args;
use crate::buyer::Visit;
use crate::common::{Stage, Worker, together};
use crate::report::Progress;
use crate::shop::{Count, Shop};
use crate::worker;

pub(crate) struct Sale {
    pub(crate) title: &'static str,
    pub(crate) locked: bool,
    pub(crate) visits: Vec<(Visit, Duration)>,
    pub(crate) took: Duration,
    pub(crate) count: Count,
}

impl Sale {
    pub(crate) fn bought(&self) -> usize {
        self.visits.iter().filter(|(visit, _)| *visit == Visit::Bought).count()
    }
}

/// Sells everything in a new shop; under a lock or not.
pub(crate) async fn sell(title: &'static str, stage: &Stage, args: &Args, locked: bool) -> Result<Sale, Failure> {
    let file = if locked { "locked.db" } else { "unlocked.db" };
    let shop = Shop::create(&stage.file(file), args.stock).await?;
    let first = |worker: u32| args.buyers * worker / args.workers;
    let all = (0..args.workers).map(|number| first(number)..first(number + 1));
    let mut workers = Vec::new();
    for buyers in all.clone() {
        workers.push(stage.start(&[&file, &locked, &buyers.start, &buyers.end])?);
    }
    // No process may be done before the others have begun.
    let progress = Progress::new(title, args.buyers);
    together(&mut workers).await?;
    let started = Instant::now();
    let follow = workers.iter_mut().zip(all).map(|(worker, buyers)| follow(worker, buyers.len(), &progress));
    let visits = try_join_all(follow).await?.concat();
    let took = started.elapsed();
    try_join_all(workers.into_iter().map(Worker::end)).await?;
    Ok(Sale { title, locked, visits, took, count: shop.count().await? })
}

/// Gathers how each buyer of a worker fared, until all have told.
async fn follow(worker: &mut Worker, buyers: usize, progress: &Progress) -> Result<Vec<(Visit, Duration)>, Failure> {
    let mut visits = Vec::new();
    while visits.len() < buyers {
        let line = worker.line().await?;
        visits.push(worker::from_line(&line).ok_or_else(|| format!("a worker said {line:?}"))?);
        progress.one_more();
    }
    Ok(visits)
}
