//! Contention: split votes, many callers, and a client that uses one of the nodes alone.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlock::backends::redis::Redis;
use dlock::backends::redlock::Redlock;
use dlock::{Clock, ErrorKind, Registry, Wait};
use dlock_contract::{Attempt, Backend, Queue, Released, Signal, Standing};
use dlock_testkit::holds::claim;
use dlock_testkit::{Mode, Proxy, lateness, wait_until};

use crate::cluster::{Cluster, SECOND, SLACK, attempt, confirm, is_contended, take};
use crate::names::K;

/// A node that is far away is waited for by 100 ms of it.
const LONG: Duration = Duration::from_secs(20);
/// A caller that wants one of them gets it within this time.
const PROGRESS: Duration = Duration::from_secs(10);

/// The URL of a client that is near to two nodes and far from two others; the fifth is down.
fn lopsided(cluster: &Cluster, near: [usize; 2]) -> (Vec<Proxy>, String) {
    let late = Duration::from_millis(20);
    let proxies: Vec<_> = cluster.nodes.iter().map(|node| Proxy::start(node.addr()).unwrap()).collect();
    for (node, proxy) in proxies.iter().enumerate() {
        if !near.contains(&node) {
            proxy.set(Mode::Delay { to_server: late, to_client: late });
        }
    }
    let hosts: Vec<_> = proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
    (proxies, format!("redlock://{}/?max_ttl=10m", hosts.join(",")))
}

#[tokio::test]
async fn a_split_vote_is_given_up_by_both_and_resolved() {
    let cluster = Cluster::start();
    cluster.kill([4]);
    let (_proxies, left) = lopsided(&cluster, [0, 1]);
    let (_more, right) = lopsided(&cluster, [2, 3]);
    let open = async |url: &str| Redlock::connect(url, &Clock::system()).await.unwrap();
    let (one, other) = (open(&left).await, open(&right).await);
    let mut splits = 0;
    for _ in 0..10 {
        let claims = [claim("k", LONG), claim("k", LONG)];
        let (first, second) = tokio::join!(attempt(&one, &claims[0]), attempt(&other, &claims[1]));
        let is_outage =
            |answer: &dlock::Result<Attempt>| answer.as_ref().is_err_and(|error| *error.kind() == ErrorKind::Outage);
        if is_outage(&first) || is_outage(&second) {
            // A busy machine: some nodes are silent for longer than one of them is waited for.
            for (answer, store) in [(first, &one), (second, &other)] {
                if let Ok(Attempt::Acquired(hold)) = answer {
                    store.release(&hold).await.unwrap();
                }
            }
            cluster.assert_empty_within(SLACK).await;
            continue;
        }
        match (first.unwrap(), second.unwrap()) {
            (Attempt::Contended(first), Attempt::Contended(second)) => {
                splits += 1;
                // Nobody holds it, so no lease is reported, and both ask again soon.
                assert!(first.lease_left.is_none() && second.lease_left.is_none());
                let soon = Clock::system().now().after(Duration::from_millis(120));
                assert!(first.ask_by.unwrap() <= soon && second.ask_by.unwrap() <= soon);
                cluster.assert_empty_within(SLACK).await;
            }
            (Attempt::Acquired(hold), _) => drop(one.release(&hold).await.unwrap()),
            (_, Attempt::Acquired(hold)) => drop(other.release(&hold).await.unwrap()),
            other => panic!("{other:?}"),
        }
    }
    assert!(splits > 0, "no vote was split: nothing is proven");

    let mut tasks = Vec::new();
    for url in [left, right] {
        let registry = Registry::new();
        registry.connect("store", &url).await.unwrap();
        registry.set_default("store").unwrap();
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let asked = Instant::now();
                let guard = registry.lock("k").ttl(LONG).wait(Wait::UpTo(PROGRESS)).acquire().await.unwrap();
                lateness::assert_within(PROGRESS + SLACK, asked, "the grant");
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    cluster.assert_empty_within(SLACK).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_all_get_the_lock_and_leave_nothing() {
    let cluster = Cluster::start();
    let grants = Arc::new(Mutex::new(vec![Instant::now()]));
    let mut tasks = Vec::new();
    for _ in 0..20 {
        // Each as good as a process: no turns among them.
        let (registry, grants) = (cluster.registry().await, grants.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..3 {
                let guard = registry.lock("k").ttl(SECOND * 6).wait(Wait::UpTo(SECOND * 120)).acquire().await.unwrap();
                guard.check().unwrap();
                grants.lock().unwrap().push(Instant::now());
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let grants = std::mem::take(&mut *grants.lock().unwrap());
    assert_eq!(grants.len(), 61);
    let longest = grants.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    println!("60 grants in {:?}, the longest pause was {longest:?}", grants[60] - grants[0]);
    assert!(longest <= PROGRESS, "for {longest:?} twenty wanted the lock and nobody got it");
    cluster.assert_empty_within(SECOND * 6 + SLACK).await;
}

/// The values are those of the single server, so a client that locks on one node alone excludes and is excluded there.
#[tokio::test]
async fn a_waiter_in_the_queue_of_one_node_neither_harms_nor_is_harmed() {
    let cluster = Cluster::start();
    let redlock = cluster.open().await;
    let single = Redis::connect(&cluster.nodes[0].url(), &Clock::system()).await.unwrap();
    let hold = take(&redlock, &claim("k", SECOND * 30)).await;
    let waiter = claim("k", SECOND * 30);
    let until = Queue::until(Clock::system().now().after(SECOND * 60));
    let Attempt::Contended(mut wake) = single.try_acquire(&waiter, until).await.unwrap() else { panic!("acquired") };
    assert!(matches!(confirm(&redlock, &hold).await, Standing::Renewed(_)));
    assert_eq!(redlock.look(&hold.claim.key).await.unwrap().note().cloned(), Some(hold.claim.note.clone()));
    assert!(is_contended(&redlock, &claim("k", SECOND * 30)).await);
    assert_eq!(redlock.release(&hold).await.unwrap(), Released::Released);
    let its = loop {
        match tokio::time::timeout(LONG, wake.signal.as_mut().unwrap()).await.unwrap().unwrap() {
            Signal::Granted(hold) => break hold,
            // A hint: on a busy machine the waiter looks at its place before the push arrives.
            _ => match single.try_acquire(&waiter, until).await.unwrap() {
                Attempt::Acquired(hold) => break hold,
                Attempt::Contended(again) => wake = again,
                other => panic!("{other:?}"),
            },
        }
    };
    // One node of five.
    let next = take(&redlock, &claim("k", SECOND * 30)).await;
    assert_eq!(single.release(&its).await.unwrap(), Released::Released);
    assert_eq!(redlock.release(&next).await.unwrap(), Released::Released);
    cluster.assert_empty_within(SLACK).await;
}

#[tokio::test]
async fn a_foreign_value_on_a_majority_is_a_conflict_and_on_a_minority_is_ignored() {
    let cluster = Cluster::start();
    let redlock = cluster.open().await;
    for node in 0..2 {
        cluster.nodes[node].ask(&format!("SET {K} foreign")).unwrap();
    }
    let hold = take(&redlock, &claim("k", SECOND * 30)).await;
    assert_eq!(redlock.release(&hold).await.unwrap(), Released::Released);
    cluster.nodes[2].ask(&format!("RPUSH {K} foreign")).unwrap();
    let error = attempt(&redlock, &claim("k", SECOND * 30)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::KeyConflict, "{error}");
    assert!(!error.is_retryable());
    cluster.until_on(K, 3).await;
}

/// Four processes of four tasks each, which want the lock again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_keeps_the_lock_for_its_own_callers() {
    const HOLDS: usize = 400;
    let cluster = Cluster::start();
    let served = Arc::new(Mutex::new(Vec::new()));
    // All are open before one begins: alone, it would have the lock for as long as the others take to open.
    let mut registries = Vec::new();
    for _ in 0..4 {
        registries.push(cluster.registry().await);
    }
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let (process, served) = (task % 4, served.clone());
            let registry = registries[process].clone();
            tokio::spawn(async move {
                while served.lock().unwrap().len() < HOLDS {
                    let guard = registry.lock("k").ttl(LONG).wait(Wait::Forever).acquire().await.unwrap();
                    served.lock().unwrap().push(process);
                    tokio::time::sleep(SECOND / 200).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let served = served.lock().unwrap().clone();
    // Before the others are known to wait, a process may have more.
    let firsts = (0..4).map(|process| served.iter().position(|of| *of == process).expect("a process had no hold"));
    let all_wait = firsts.max().unwrap();
    let longest = served[all_wait..].chunk_by(|one, other| one == other).map(<[usize]>::len).max().unwrap();
    let shares: Vec<_> = (0..4).map(|process| served.iter().filter(|of| **of == process).count()).collect();
    println!("{shares:?} holds, {longest} in a row");
    assert!(longest <= 12, "a process had {longest} holds in a row while others waited");
    assert!(shares.iter().all(|holds| *holds >= HOLDS / 12), "{shares:?} holds of the processes");
    cluster.assert_empty_within(SLACK).await;
}

/// Both have waited in vain when neither had a majority, and each knew of the other.
#[tokio::test]
async fn two_processes_that_had_their_share_do_not_leave_a_free_lock_to_each_other() {
    let cluster = Cluster::start();
    let stores = [cluster.open().await, cluster.open().await];
    for store in &stores {
        for _ in 0..8 {
            let hold = take(store, &claim("k", LONG)).await;
            assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        }
    }
    // Two other owners have two nodes each.
    for node in 0..4 {
        cluster.nodes[node].ask(&format!("SET {K} owner-{} PX 60000", node / 2)).unwrap();
    }
    let claims = [claim("k", LONG), claim("k", LONG)];
    let until = || Queue::until(Clock::system().now().after(LONG));
    for (store, claim) in stores.iter().zip(&claims) {
        assert!(matches!(store.try_acquire(claim, until()).await.unwrap(), Attempt::Contended(_)));
    }
    for node in 0..4 {
        cluster.nodes[node].ask(&format!("DEL {K}")).unwrap();
    }
    let mut winner = None;
    wait_until("one of them has the free lock", async || {
        for (store, claim) in stores.iter().zip(&claims) {
            if let Attempt::Acquired(hold) = store.try_acquire(claim, until()).await.unwrap() {
                winner = Some((store, hold));
                return true;
            }
        }
        false
    })
    .await
    .unwrap();
    let (store, hold) = winner.unwrap();
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    for (store, claim) in stores.iter().zip(&claims) {
        store.abandon(claim).await.unwrap();
    }
    cluster.assert_empty_within(SLACK).await;
}
