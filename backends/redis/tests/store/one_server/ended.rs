//! Connections that end while requests are on their way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dlock_contract::{Backend, Queue};
use dlock_testkit::holds::claim;
use tokio::task::JoinSet;

use super::database::{Database, HOUR, SECOND};

/// A request that is handed to the client while its connection ends gets no answer. It must not wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_outlasts_its_connection() {
    let server = Database::own(&[]);
    let redis = Arc::new(server.open().await);
    let rests = Arc::<AtomicBool>::default();
    let mut askers = JoinSet::new();
    for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let (redis, rests) = (redis.clone(), rests.clone());
        askers.spawn(async move {
            while !rests.load(Ordering::Relaxed) {
                let claim = claim(key, HOUR);
                // The result does not matter here.
                let _ = redis.try_acquire(&claim, Queue::Leave).await;
                let _ = redis.abandon(&claim).await;
            }
        });
    }
    let killing = tokio::task::spawn_blocking(move || {
        let mut raw = server.raw();
        for _ in 0..1000 {
            let _: i64 = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query(&mut raw).unwrap();
            std::thread::sleep(Duration::from_millis(4));
        }
        server
    });
    let _server = killing.await.unwrap();
    rests.store(true, Ordering::Relaxed);
    let all = tokio::time::timeout(30 * SECOND, askers.join_all());
    assert!(all.await.is_ok(), "a request waits for an answer that cannot come");
}
