//! A process that locks, works and unlocks until it is killed, and writes down what it held.

use std::path::Path;
use std::time::Duration;

use dlock::{Key, Wait};

use super::var;
use crate::arena::now;
use crate::history::Record;

/// How many locks the workers contend for.
const KEYS: usize = 3;

/// Short, so that a history of seconds has many takeovers.
pub(crate) const WORKER_TTL: Duration = Duration::from_secs(1);

pub(super) async fn work() {
    let mut random = fastrand::Rng::with_seed(var("SEED").parse().unwrap());
    let mut record = Record::append_to(Path::new(&var("RECORD")));
    println!("working");
    loop {
        let key = format!("{}", random.usize(..KEYS));
        let lock = dlock::lock(Key::text("k").value(&key)).ttl(WORKER_TTL);
        let acquire = lock.wait(Wait::UpTo(WORKER_TTL * 3)).acquire();
        // Some callers lose patience on the way.
        let patience = Duration::from_millis(if random.u8(..8) == 0 { random.u64(..20) } else { 60_000 });
        let Ok(Ok(guard)) = tokio::time::timeout(patience, acquire).await else {
            // A server that is away must not make this loop a burden.
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let since = now().as_nanos();
        for _ in 0..random.u32(1..10) {
            if !record.note(&key, &guard, since) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(random.u64(..10))).await;
        }
        record.note(&key, &guard, since);
        if random.bool() {
            // It may be lost by now, as the nemesis likes.
            let _ = guard.release().await;
        }
    }
}
