//! One sale, seen from the parent: start the workers, open all doors at once, gather what they tell.

use std::ops::Range;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Failure;
use crate::args::Args;
use crate::buyer::Visit;
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

/// Sells everything in a new shop; under a lock if there is a URL for it.
pub(crate) async fn sell(title: &'static str, args: &Args, url: Option<&str>, file: &Path) -> Result<Sale, Failure> {
    let shop = Shop::create(file, args.stock).await?;
    let mut workers = Vec::new();
    for number in 0..args.workers {
        let first = |worker: u32| args.buyers * worker / args.workers;
        workers.push(Worker::start(number + 1, file, first(number)..first(number + 1), url)?);
    }
    // No process may be done before the others have begun.
    for worker in &mut workers {
        worker.ready().await?;
    }
    let progress = Progress::new(title, args.buyers);
    let started = Instant::now();
    for worker in &mut workers {
        worker.open_door().await?;
    }
    let visits = try_join_all(workers.iter_mut().map(|worker| worker.follow(&progress))).await?.concat();
    let took = started.elapsed();
    for worker in &mut workers {
        worker.end().await?;
    }
    Ok(Sale { title, locked: url.is_some(), visits, took, count: shop.count().await? })
}

/// A worker process; killed when dropped.
struct Worker {
    number: u32,
    buyers: usize,
    process: Child,
    /// Open as long as we live: its end tells the worker that we are gone.
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(number: u32, shop: &Path, buyers: Range<u32>, url: Option<&str>) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(worker::SHOP, shop).env(worker::BUYERS, format!("{buyers:?}")).env_remove(worker::URL);
        if let Some(url) = url {
            command.env(worker::URL, url);
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(orders), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a worker has no pipes".into());
        };
        Ok(Self { number, buyers: buyers.len(), process, orders, lines: BufReader::new(output).lines() })
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        match self.lines.next_line().await? {
            Some(line) if line == "ready" => Ok(()),
            Some(line) => Err(self.unheard_of(&line)),
            None => Err(self.died(0).await),
        }
    }

    async fn open_door(&mut self) -> Result<(), Failure> {
        match self.orders.write_all(b"go\n").await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.died(0).await),
        }
    }

    /// Gathers how each buyer fared, until all have told.
    async fn follow(&mut self, progress: &Progress) -> Result<Vec<(Visit, Duration)>, Failure> {
        let mut visits = Vec::new();
        while visits.len() < self.buyers {
            let Some(line) = self.lines.next_line().await? else {
                return Err(self.died(visits.len()).await);
            };
            visits.push(worker::from_line(&line).ok_or_else(|| self.unheard_of(&line))?);
            progress.one_more();
        }
        Ok(visits)
    }

    async fn end(&mut self) -> Result<(), Failure> {
        if self.process.wait().await?.success() { Ok(()) } else { Err(self.died(self.buyers).await) }
    }

    fn unheard_of(&self, line: &str) -> Failure {
        format!("worker {} said {line:?}", self.number).into()
    }

    async fn died(&mut self, visits: usize) -> Failure {
        let status = self.process.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("worker {} ended with {status} after {visits} of {} buyers", self.number, self.buyers).into()
    }
}
