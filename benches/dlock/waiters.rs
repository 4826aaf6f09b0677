//! 10,000 tasks that wait for one key: what each costs this process, and what a hand-over costs the server.

use std::time::Duration;

use dlock::{Lock, Registry, Wait};
use dlock_testkit::servers::shared;

use crate::Failed;
use crate::renewals::{calls, resident};
use crate::table::{Contender, Row};

const WAITERS: usize = 10_000;

pub(crate) fn row() -> Result<Row, Failed> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(measure())
}

async fn measure() -> Result<Row, Failed> {
    let url = shared().redis()?;
    let registry = Registry::new();
    registry.connect("bench", &url).await?;
    let mut server = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    // The first ones open what pushes come over.
    let (one, other) = (lock(&registry).run(|_| async {}), lock(&registry).run(|_| async {}));
    let (one, other) = tokio::join!(one, other);
    one.and(other)?;

    let held = lock(&registry).acquire().await?;
    let before = resident()?;
    let waiting: Vec<_> = (0..WAITERS).map(|_| tokio::spawn(lock(&registry).run(|_| async {}))).collect();
    // All of them have asked for their turn by then. A late one would be counted by the requests that it sends.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let bytes = resident()?.saturating_sub(before) as f64 / WAITERS as f64;
    let before = calls(&mut server).await?;
    held.release().await?;
    for waiter in waiting {
        waiter.await??;
    }
    let requests = (calls(&mut server).await? - before) as f64 / WAITERS as f64;
    registry.shutdown(Duration::from_secs(10)).await;
    let mut row = Row {
        name: "waiters-10k".into(),
        about: "10,000 tasks of one process that wait for one key on Redis, empty section, each once.".into(),
        contenders: vec![Contender {
            name: "dlock".into(),
            figures: vec![("bytes of ours for each that waits", bytes), ("scripts per hand-over", requests)],
        }],
        aims: Vec::new(),
    };
    row.aim("at most 4 KiB for each that waits, its task included", bytes, bytes <= 4096.0);
    row.aim("at most 1.2 scripts per hand-over", requests, requests <= 1.2);
    Ok(row)
}

fn lock(registry: &Registry) -> Lock {
    registry.lock("bench:crowd").backend("bench").wait(Wait::Forever)
}
