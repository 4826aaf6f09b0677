//! Lost answers and dropped callers: nothing stays on any node beyond the ttl.

use std::time::{Duration, Instant};

use dlock::ErrorKind;
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::{claim, token};
use dlock_testkit::{Mode, a_closed_store_opens_nothing, drop_after, lateness, wait_until};
use fastrand::Rng;

use crate::cluster::{Cluster, SECOND, SLACK, attempt, confirm, is_contended, seed, take, win};
use crate::names::K;

#[tokio::test]
async fn lost_answers_of_all_nodes_leave_nothing_beyond_the_ttl() {
    let cluster = Cluster::start();
    let (far, near) = (cluster.open_far().await, cluster.open().await);
    cluster.set(0..5, Mode::DropReplies);
    // Long enough for a busy machine to look at all servers before it is over.
    let ttl = SECOND * 4;
    let error = attempt(&far, &claim("k", ttl)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Outage);
    let asked = Instant::now();
    // It was done, and nobody knows.
    assert!(!cluster.left().is_empty(), "the servers did nothing: nothing is proven");
    let next = win(&near, &claim("k", ttl), ttl + SLACK).await;
    lateness::assert_within(ttl + SLACK, asked, "the next grant");
    near.release(&next).await.unwrap();
    cluster.set(0..5, Mode::Pass);
    cluster.assert_empty_within(ttl + SLACK).await;
    // An abandon that gets through needs no ttl.
    let warm = win(&far, &claim("k", ttl), SLACK).await;
    far.release(&warm).await.unwrap();
    let long = claim("k", SECOND * 60);
    cluster.set(0..5, Mode::DropReplies);
    attempt(&far, &long).await.unwrap_err();
    assert!(!cluster.left().is_empty());
    cluster.set(0..5, Mode::Pass);
    let start = Instant::now();
    while let Err(error) = far.abandon(&long).await {
        assert!(error.is_retryable(), "{error}");
        lateness::assert_within(SLACK, start, &format!("an answer after {error}"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.assert_empty_within(SLACK).await;
}

/// A node that is down says so at once. One that is silent must not use up the time of the whole question.
#[tokio::test]
async fn a_silent_node_is_a_finding_as_one_that_is_down() {
    let cluster = Cluster::start();
    let registry = dlock::Registry::new();
    registry.connect("store", &cluster.far_url()).await.unwrap();
    cluster.set([1], Mode::BLACKHOLE);
    let health = registry.ready("store").await.unwrap();
    assert!(health.findings.len() == 1 && health.findings[0].contains("cannot vote"), "{health}");
}

#[tokio::test]
async fn a_store_that_was_closed_opens_nothing() {
    let cluster = Cluster::start();
    a_closed_store_opens_nothing(&cluster.open_far().await, &cluster.proxies, &claim("k", SECOND * 60)).await;
}

#[tokio::test]
async fn lost_answers_of_a_minority_change_nothing() {
    let cluster = Cluster::start();
    let far = cluster.open_far().await;
    cluster.set([1, 2], Mode::DropReplies);
    let hold = take(&far, &claim("k", SECOND * 8)).await;
    assert!(matches!(confirm(&far, &hold).await, Standing::Renewed(_)));
    assert_eq!(far.release(&hold).await.unwrap(), Released::Released);
    // A value that may be left there blocks nobody.
    let next = take(&far, &claim("k", SECOND * 8)).await;
    assert!(token(&next) > token(&hold));
    far.release(&next).await.unwrap();
    cluster.assert_empty_within(SECOND * 8 + SLACK).await;
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again() {
    let cluster = Cluster::start();
    let (redlock, other) = (cluster.open().await, cluster.open().await);
    let mine = claim("k", SECOND * 30);
    let first = take(&redlock, &mine).await;
    let again = take(&redlock, &mine).await;
    assert!(again.validity.from > first.validity.from && token(&again) > token(&first));
    // A release of the first round may still be on its way. It is not the second one's.
    assert_eq!(redlock.release(&first).await.unwrap(), Released::NotOwner);
    assert!(is_contended(&other, &claim("k", SECOND * 30)).await);
    assert!(matches!(confirm(&redlock, &again).await, Standing::Renewed(_)));
    assert_eq!(redlock.release(&again).await.unwrap(), Released::Released);
    cluster.assert_empty_within(SLACK).await;
}

#[tokio::test]
async fn a_round_that_comes_late_takes_nothing_from_a_later_one() {
    let cluster = Cluster::start();
    // An account that may end the old connection in the server hears nothing of it any more.
    cluster.nodes[1].ask("ACL SETUSER default -client|kill").unwrap();
    let (far, near) = (cluster.open_far().await, cluster.open().await);
    let first = take(&near, &claim("k", SECOND * 60)).await;
    let mine = claim("k", SECOND * 60);
    // Requests to one node get stuck on the present connection, until that connection is given up.
    cluster.proxies[1].keep();
    assert!(is_contended(&far, &mine).await);
    assert_eq!(near.release(&first).await.unwrap(), Released::Released);
    cluster.kill([3, 4]);
    let hold = win(&far, &mine, SECOND * 10).await;
    cluster.restart([3, 4]);
    let node = &cluster.nodes[1];
    let value = || node.ask(&format!("GET {K}")).unwrap();
    let (before, until_then) = (value(), cluster.scripts(1));
    cluster.proxies[1].deliver(&cluster.proxies[1].kept());
    // An attempt, and that it was given back.
    wait_until("the old requests arrive", async || cluster.scripts(1) >= until_then + 2).await.unwrap();
    assert_eq!(value(), before);
    assert!(is_contended(&near, &claim("k", SECOND * 60)).await);
    assert!(matches!(confirm(&far, &hold).await, Standing::Renewed(_)));
    assert_eq!(far.release(&hold).await.unwrap(), Released::Released);
    cluster.assert_empty_within(SLACK).await;
}

#[tokio::test]
async fn a_lock_that_some_nodes_still_have_of_the_same_owner_is_taken_over() {
    let cluster = Cluster::start();
    let redlock = cluster.open().await;
    let mine = claim("k", SECOND * 30);
    take(&redlock, &mine).await;
    for node in [0, 3] {
        cluster.nodes[node].ask(&format!("DEL {K}")).unwrap();
    }
    let hold = take(&redlock, &mine).await;
    // All five are of this round, so all five are renewed and freed.
    wait_until("all five nodes have the lock", async || cluster.left().len() == 5).await.unwrap();
    cluster.kill([1, 2]);
    assert!(matches!(confirm(&redlock, &hold).await, Standing::Renewed(_)));
    assert_eq!(redlock.release(&hold).await.unwrap(), Released::Released);
    cluster.assert_empty_within(SLACK).await;
}

#[tokio::test]
async fn two_hundred_dropped_attempts_leave_nothing_on_any_node() {
    let cluster = Cluster::start();
    let far = cluster.open_far().await;
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let mut granted = 0;
    for _ in 0..200 {
        // One node is slower than the others, each time another one.
        let slow = random.usize(..5);
        let late = Duration::from_millis(random.u64(0..8));
        cluster.set([slow], Mode::Delay { to_server: late, to_client: late });
        let claim = claim("k", SECOND * 300);
        let pause = Duration::from_millis(random.u64(0..3));
        let attempt = far.try_acquire(&claim, Queue::Leave);
        if let Some(Ok(Attempt::Acquired(_))) = drop_after(random.usize(0..12), pause, attempt).await {
            granted += 1;
        }
        let start = Instant::now();
        while let Err(error) = far.abandon(&claim).await {
            assert!(error.is_retryable(), "DLOCK_SEED={seed}: {error}");
            lateness::assert_within(SLACK, start, &format!("DLOCK_SEED={seed}: an answer after {error}"));
        }
        cluster.set([slow], Mode::Pass);
    }
    println!("{granted} of 200 were granted before the drop");
    assert!(granted < 200, "nothing was dropped under way: nothing is proven");
    cluster.assert_empty_within(SLACK).await;
    // A short ttl would give each node a few milliseconds, which is too little on a busy machine.
    let hold = take(&far, &claim("k", SECOND * 300)).await;
    far.release(&hold).await.unwrap();
}
