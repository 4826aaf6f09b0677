//! `keys=literal` beside real redsync, eight tasks of each.

use std::time::Instant;

use dlock::Wait;
use redis::Commands;

use crate::bench::{Bench, LONG, MS, SECOND};
use crate::redsync_peer::Redsync;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it needs Go: `cargo xtask interop`"]
async fn redsync_and_ours_take_turns_and_what_both_count_is_right() {
    let bench = Bench::new();
    let counter = format!("count:{}", bench.name);
    let registry = bench.registry("keys=literal").await;
    let theirs = Redsync::start(&bench.url, &bench.name, &counter, 8);
    let end = Instant::now() + 8 * SECOND;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (registry, key, url, counter) = (registry.clone(), bench.text(), bench.url.clone(), counter.clone());
            tokio::spawn(async move {
                let mut raw = redis::Client::open(url).unwrap().get_connection().unwrap();
                let mut holds = 0;
                while Instant::now() < end {
                    let lock = registry.lock(key.clone()).ttl(LONG).wait(Wait::UpTo(LONG));
                    let guard = lock.acquire().await.unwrap();
                    let before: Option<u64> = raw.get(&counter).unwrap();
                    tokio::time::sleep(MS).await;
                    let () = raw.set(&counter, before.unwrap_or(0) + 1).unwrap();
                    guard.release().await.unwrap();
                    holds += 1;
                    tokio::time::sleep(10 * MS).await;
                }
                holds
            })
        })
        .collect();
    let mut ours = 0;
    for task in tasks {
        ours += task.await.unwrap();
    }
    let theirs = tokio::task::spawn_blocking(|| theirs.seen()).await.unwrap();
    println!("ours {ours}, {theirs:?}");
    assert_eq!(bench.raw().get::<_, u64>(&counter).unwrap(), ours + theirs.holds);
    // Each of its tasks once a second, by far.
    assert!(theirs.holds > 64 && theirs.failures <= 8 && ours > 64, "ours {ours}, {theirs:?}");
}
