//! A node of a cluster that swallows everything, as one does behind a firewall that has lost it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlock_contract::{Backend, Released, Standing};
use dlock_testkit::holds::{claim, take};
use dlock_testkit::servers::RedisCluster;
use dlock_testkit::{Mode, wait_until};

use super::cluster::{LIMIT, key_at};
use super::{MS, attempt, blocking, open, standing_soon, take_soon};

const ASKING: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_swallows_everything_delays_no_request_to_another() {
    let cluster = Arc::new(blocking(|| RedisCluster::start(3, 0, true, &[]).unwrap()).await);
    let redis = Arc::new(open(&cluster.url()).await);
    let (swallowed, other) = (key_at(&cluster, 0), key_at(&cluster, 1));
    let held = take(&*redis, &claim(&other, 10 * LIMIT)).await;
    cluster.proxies[0].set(Mode::BLACKHOLE);
    let failed = Arc::new(AtomicUsize::new(0));
    let asking: Vec<_> = (0..ASKING)
        .map(|_| {
            let (redis, failed, key) = (redis.clone(), failed.clone(), swallowed.clone());
            tokio::spawn(async move {
                loop {
                    assert!(attempt(&redis, &claim(&key, LIMIT)).await.is_err());
                    failed.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let is_noticed = async || failed.load(Ordering::SeqCst) >= ASKING;
    wait_until("the requests to the silent node fail", is_noticed).await.unwrap();
    // Counts naps instead of time: while the machine stands still, it does not count.
    let naps = Arc::new(AtomicUsize::new(0));
    let counted = naps.clone();
    let napping = tokio::spawn(async move {
        loop {
            tokio::time::sleep(50 * MS).await;
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let goes_on = async || {
        let (before, mut longest) = (failed.load(Ordering::SeqCst), 0);
        while failed.load(Ordering::SeqCst) < before + 3 * ASKING {
            let asked = naps.load(Ordering::SeqCst);
            assert!(matches!(standing_soon(&redis, &held, LIMIT).await, Standing::Renewed(_)));
            longest = longest.max(naps.load(Ordering::SeqCst) - asked);
        }
        longest < 10
    };
    wait_until("no renewal is late while requests to the silent node fail", goes_on).await.unwrap();
    napping.abort();
    for task in asking {
        assert!(!task.is_finished());
        task.abort();
    }
    cluster.proxies[0].set(Mode::Pass);
    take_soon(&redis, &claim(&swallowed, LIMIT), LIMIT).await;
    assert_eq!(redis.release(&held).await.unwrap(), Released::Released);
}
