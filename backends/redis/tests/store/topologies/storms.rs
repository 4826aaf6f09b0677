//! A slot that does not come to rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dlock::{ErrorKind, Key, LossCause, Registry, Wait};
use dlock_contract::{Backend, Queue, Released};
use dlock_testkit::holds::claim;

use super::cluster::{Move, cluster, patient};
use super::{MS, blocking, connections, open, refusal, take_soon, with};

const LIMIT: Duration = Duration::from_secs(30);

/// The data that the lock guards: each of its two numbers is read and written in two steps.
#[derive(Default)]
struct Guarded {
    count: AtomicU64,
    token: AtomicU64,
}

impl Guarded {
    async fn raise(&self, token: u64) {
        let (count, last) = (self.count.load(Ordering::SeqCst), self.token.load(Ordering::SeqCst));
        assert!(token > last, "{token} after {last}");
        tokio::time::sleep(MS).await;
        self.count.store(count + 1, Ordering::SeqCst);
        self.token.store(token, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lock_in_a_slot_that_keeps_moving_has_one_holder_at_a_time() {
    let cluster = cluster(3, 0).await;
    let (guarded, rests) = (Arc::<Guarded>::default(), Arc::<AtomicBool>::default());
    let mut registries = Vec::new();
    for _ in 0..2 {
        let registry = Registry::new();
        registry.connect("redis", &cluster.url()).await.unwrap();
        registry.set_default("redis").unwrap();
        registry.configure(|defaults| defaults.namespace = "test".into()).unwrap();
        registries.push(registry);
    }
    let work = |n: usize| {
        let (registry, guarded, rests) = (registries[n % 2].clone(), guarded.clone(), rests.clone());
        tokio::spawn(async move {
            let mut done = 0;
            while !rests.load(Ordering::SeqCst) {
                let lock = registry.lock(Key::new().value("storm"));
                let guard = lock.ttl(LIMIT).wait(Wait::UpTo(LIMIT)).retry(patient()).acquire().await.unwrap();
                guarded.raise(guard.fence().unwrap().get()).await;
                // A release that follows the slot for long may find the lease of a pushed grant over.
                if let Err(error) = guard.release().await {
                    assert_eq!(*error.kind(), ErrorKind::Lost(LossCause::Store), "{error}");
                }
                done += 1;
            }
            done
        })
    };
    let workers: Vec<_> = (0..4).map(work).collect();
    let (moving, seen) = (cluster.clone(), guarded.clone());
    blocking(move || {
        for _ in 0..20 {
            let step = Move::of(&moving, "storm");
            step.begin();
            step.carry(">}");
            step.finish();
            let before = seen.count.load(Ordering::SeqCst);
            // Somebody has been there before it goes on.
            let end = std::time::Instant::now() + LIMIT;
            while seen.count.load(Ordering::SeqCst) == before {
                assert!(std::time::Instant::now() < end, "nobody got the lock");
                std::thread::sleep(5 * MS);
            }
        }
    })
    .await;
    rests.store(true, Ordering::SeqCst);
    let mut done = 0;
    for worker in workers {
        done += worker.await.unwrap();
    }
    assert_eq!(guarded.count.load(Ordering::SeqCst), done, "nobody else was in between");
    for registry in registries {
        assert_eq!(registry.shutdown(LIMIT).await.unconfirmed, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_servers_that_name_each_other_are_an_outage() {
    let cluster = cluster(3, 0).await;
    let redis = open(&cluster.url()).await;
    let Move { slot, from, to, .. } = Move::of(&cluster, "pushed");
    let names = |node: usize, other: usize| {
        let id = cluster.id(other).unwrap();
        cluster.nodes[node].ask(&format!("CLUSTER SETSLOT {slot} NODE {id}")).unwrap();
    };
    names(from, to);
    names(to, from);
    for _ in 0..2 {
        // Sooner than the engine gives up.
        let error = refusal(&redis, &claim("pushed", LIMIT)).await;
        assert!(*error.kind() == ErrorKind::Outage && error.is_retryable(), "{error}");
        assert!(error.to_string().contains("MOVED"), "{error}");
    }
    // A caller with less patience does not take them for silent: they answer.
    let redis = open(&with(&cluster.url(), "restart_guard=off&failover_guard=off")).await;
    let before = connections(&cluster, from);
    for _ in 0..8 {
        let claim = claim("pushed", LIMIT);
        let answer = tokio::time::timeout(300 * MS, redis.try_acquire(&claim, Queue::Leave)).await;
        assert!(!matches!(answer, Ok(Ok(_))), "{answer:?}");
    }
    assert!(before.is_subset(&connections(&cluster, from)), "the client was replaced");
    names(from, from);
    let hold = take_soon(&redis, &claim("pushed", LIMIT), LIMIT).await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
}
