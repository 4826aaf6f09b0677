//! 1000 held lease rows: what they cost in memory, and whether all are still held.

use std::sync::Arc;
use std::time::Duration;

use dlock::{Key, Registry};
use futures::future::try_join_all;

use crate::Failed;
use crate::renewals::resident;
use crate::sql::{Make, Way, server_of};
use crate::table::{Contender, Row};

const HOLDS: usize = 1000;
const TTL: Duration = Duration::from_secs(6);
/// Long enough for each hold to be renewed three times.
const WATCHED: Duration = Duration::from_secs(8);
const MEGABYTE: f64 = 1_000_000.0;

pub(crate) fn row(make: Make) -> Result<Row, Failed> {
    let url = server_of(make, Way::Lease)?.url();
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(measure(make, &url))
}

async fn measure(make: Make, url: &str) -> Result<Row, Failed> {
    let registry = Arc::new(Registry::new());
    registry.connect("held", url).await?;
    let taking = (0..HOLDS).map(|number| {
        let lock = registry.lock(Key::text("bench:held:").value(&number)).ttl(TTL).backend("held");
        lock.wait(dlock::Wait::UpTo(Duration::from_secs(30))).acquire()
    });
    let guards = try_join_all(taking).await?;
    tokio::time::sleep(WATCHED).await;
    let whole = resident()? as f64 / MEGABYTE;
    let held = guards.iter().filter(|guard| guard.check().is_ok()).count() as f64;
    for guard in guards {
        guard.release().await?;
    }
    registry.shutdown(Duration::from_secs(10)).await;
    let mut row = Row {
        name: format!("lease-held-1000-{}", make.name()),
        about: format!(
            "{HOLDS} held lease rows on {}, ttl {} s, for {} s.",
            make.name(),
            TTL.as_secs(),
            WATCHED.as_secs()
        ),
        contenders: vec![Contender {
            name: "dlock".into(),
            figures: vec![("MB of the whole process", whole), ("still held", held)],
        }],
        aims: Vec::new(),
    };
    row.aim("under 100 MB with 1000 held locks", whole, whole < 100.0);
    row.aim("all still held", held, held == HOLDS as f64);
    Ok(row)
}
