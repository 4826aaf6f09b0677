//! A minority may be down or slow. A majority that is down is an outage, and ends a hold in time.

use std::time::{Duration, Instant};

use dlock::{ErrorKind, LossCause, Wait};
use dlock_contract::{Attempt, Backend, Released, Standing};
use dlock_testkit::holds::{SITE, claim, key, token};
use dlock_testkit::{Mode, lateness, text_of, until_lost};

use crate::cluster::{Cluster, SECOND, SLACK, attempt, confirm, is_contended, take, win};

/// How long one silent node is waited for, for a lock with [`LONG`]: a two-hundredth.
const PATIENCE: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn two_of_five_nodes_may_be_down() {
    let cluster = Cluster::start();
    let before = cluster.open().await;
    cluster.kill([1, 3]);
    // For a process that knew the nodes, and for one that never met them.
    for redlock in [before, cluster.open().await] {
        let other = cluster.open().await;
        let hold = take(&redlock, &claim("k", LONG)).await;
        assert!(is_contended(&other, &claim("k", LONG)).await);
        assert!(matches!(confirm(&redlock, &hold).await, Standing::Renewed(_)));
        let note = other.look(&key("k")).await.unwrap().note().cloned().unwrap();
        assert_eq!((note.site(), note.pid()), (Some(SITE), Some(std::process::id())));
        assert_eq!(redlock.release(&hold).await.unwrap(), Released::Released);
        assert_eq!(other.look(&key("k")).await.unwrap().note().cloned(), None);
        cluster.assert_empty_within(SLACK).await;
    }
}

#[tokio::test]
async fn three_of_five_nodes_down_are_an_outage_and_leave_nothing() {
    let cluster = Cluster::start();
    let (redlock, other) = (cluster.open().await, cluster.open().await);
    let held = take(&redlock, &claim("held", LONG)).await;
    cluster.kill([0, 2, 4]);
    for _ in 0..3 {
        let error = attempt(&redlock, &claim("free", LONG)).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Outage);
        assert!(error.is_retryable() && text_of(&error).contains("3 or more of the 5"), "{error}");
        // Two nodes say that another owner holds this lock, but there is still no majority of votes.
        let error = attempt(&other, &claim("held", LONG)).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Outage, "{error}");
    }
    assert!(cluster.left().iter().all(|left| left.contains("held")), "{:?}", cluster.left());
    // Unknown is not lost.
    assert!(redlock.renew(&[&held]).await.remove(0).unwrap_err().is_retryable());
    assert!(redlock.release(&held).await.unwrap_err().is_retryable());
    assert!(other.look(&key("free")).await.unwrap_err().is_retryable());
    let error = dlock::backends::redlock::Redlock::connect(&cluster.url(), &dlock::Clock::system()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Outage);
    cluster.restart([0, 2, 4]);
    // They come back with everything. The two that were up have freed it; a majority still has it until it is asked.
    let answer = redlock.release(&held).await.unwrap();
    assert_eq!(answer, Released::Released);
    cluster.assert_empty_within(SLACK).await;
}

#[tokio::test]
async fn a_silent_minority_costs_at_most_the_wait_for_a_node() {
    let cluster = Cluster::start();
    let redlock = cluster.open().await;
    let warm = take(&redlock, &claim("k", LONG)).await;
    redlock.release(&warm).await.unwrap();
    // Stopped: connects still succeed, answers do not come.
    cluster.nodes[1].pause().unwrap();
    cluster.nodes[4].pause().unwrap();
    let mut best = Duration::MAX;
    // The first rounds find the connections open, the later ones have to open them and never do.
    for _ in 0..12 {
        let start = Instant::now();
        let hold = take(&redlock, &claim("k", LONG)).await;
        assert!(matches!(confirm(&redlock, &hold).await, Standing::Renewed(_)));
        assert_eq!(redlock.release(&hold).await.unwrap(), Released::Released);
        best = best.min(start.elapsed());
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    // The best, since the machine may be busy: each of them waited for the silent nodes in the release, once for both.
    assert!(
        best < PATIENCE * 2,
        "a cycle with two silent nodes took {best:?}: if the machine was busy all the time, nothing is proven"
    );
    for node in [1, 4] {
        cluster.nodes[node].resume().unwrap();
        cluster.wait_until_read(node);
    }
    // Requests that were sent to them while they slept are done in order.
    cluster.assert_empty_within(SLACK).await;
    // And they vote again.
    cluster.kill([0, 2]);
    win(&redlock, &claim("k", LONG), SLACK).await;
}

#[tokio::test]
async fn a_node_is_waited_for_by_no_more_than_a_two_hundredth_of_the_ttl() {
    let cluster = Cluster::start();
    let far = cluster.open_far().await;
    let late = Duration::from_millis(40);
    cluster.set(0..3, Mode::Delay { to_server: late, to_client: late });
    // 10 ms, and 300 ms.
    let (short, long) = (SECOND * 2, SECOND * 60);
    for _ in 0..3 {
        let mut refused = None;
        // If this process is kept from running, it may find the answers there.
        for _ in 0..100 {
            match attempt(&far, &claim("k", short)).await {
                Ok(Attempt::Acquired(hold)) => assert_eq!(far.release(&hold).await.unwrap(), Released::Released),
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let error = refused.expect("each attempt had its answers after 80 ms");
        assert_eq!(*error.kind(), ErrorKind::Outage);
        assert!(error.is_retryable() && text_of(&error).contains("did not answer within 10ms"), "{error}");
        cluster.assert_empty_within(SLACK).await;
        let hold = win(&far, &claim("k", long), SLACK).await;
        assert!(matches!(confirm(&far, &hold).await, Standing::Renewed(_)));
        assert_eq!(far.release(&hold).await.unwrap(), Released::Released);
        cluster.assert_empty_within(SLACK).await;
    }
}

#[tokio::test]
async fn nodes_that_were_silent_for_a_moment_are_asked_again() {
    let cluster = Cluster::start();
    let redlock = cluster.open().await;
    // One of them is waited for by 30 ms.
    let ttl = SECOND * 6;
    let mut granted = 0;
    for _ in 0..10 {
        cluster.nodes[..3].iter().for_each(|node| node.pause().unwrap());
        let mine = claim("k", ttl);
        // Longer than one of them is waited for.
        let moment = tokio::time::sleep(Duration::from_millis(80));
        let resumed = async {
            moment.await;
            cluster.nodes[..3].iter().for_each(|node| node.resume().unwrap());
        };
        let (answer, ()) = tokio::join!(attempt(&redlock, &mine), resumed);
        match answer {
            Ok(Attempt::Acquired(hold)) => {
                granted += 1;
                assert!(matches!(confirm(&redlock, &hold).await, Standing::Renewed(_)));
                assert_eq!(redlock.release(&hold).await.unwrap(), Released::Released);
            }
            // A busy machine may take longer for the moment.
            Err(error) if *error.kind() == ErrorKind::Outage => {}
            other => panic!("{other:?}"),
        }
        cluster.assert_empty_within(ttl + SLACK).await;
    }
    println!("{granted} of 10 were granted");
    assert!(granted > 0, "a moment's silence was an outage");
}

#[tokio::test]
async fn nodes_that_stay_silent_are_not_asked_for_ever() {
    let cluster = Cluster::start();
    let redlock = cluster.open().await;
    cluster.nodes.iter().for_each(|node| node.pause().unwrap());
    for ttl in [SECOND, LONG, SECOND * 600] {
        let start = Instant::now();
        let error = attempt(&redlock, &claim("k", ttl)).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Outage);
        assert!(text_of(&error).contains("the 5 Redlock nodes gave no usable answer"), "{error}");
        lateness::assert_within(SLACK, start, "the answer");
    }
    cluster.nodes.iter().for_each(|node| node.resume().unwrap());
    cluster.assert_empty_within(SLACK).await;
}

#[tokio::test]
async fn a_process_that_is_kept_from_running_finds_the_answers_in_time() {
    let cluster = Cluster::start();
    let redlock = cluster.open().await;
    // A node is waited for by 20 ms.
    let ttl = SECOND * 4;
    let warm = take(&redlock, &claim("k", ttl)).await;
    redlock.release(&warm).await.unwrap();
    let mut at_once = 0;
    for _ in 0..5 {
        let before = cluster.calls(0, "incrby");
        let mine = claim("k", ttl);
        // Each time longer than a node is waited for.
        let busy = async {
            for _ in 0..12 {
                std::thread::sleep(Duration::from_millis(30));
                tokio::task::yield_now().await;
            }
        };
        let (answer, ()) = tokio::join!(attempt(&redlock, &mine), busy);
        let hold = match answer {
            Ok(Attempt::Acquired(hold)) => hold,
            // The servers may be kept from running too.
            Err(error) if *error.kind() == ErrorKind::Outage => continue,
            other => panic!("{other:?}"),
        };
        // That node was asked for one vote: each draws one number.
        at_once += u32::from(cluster.calls(0, "incrby") == before + 1);
        assert_eq!(redlock.release(&hold).await.unwrap(), Released::Released);
        cluster.assert_empty_within(ttl + SLACK).await;
    }
    println!("{at_once} of 5 in one round");
    assert!(at_once > 0, "what had come was taken for silence");
}

#[tokio::test]
async fn renewals_with_a_minority_down_keep_a_hold_and_with_a_majority_down_lose_it_in_time() {
    let cluster = Cluster::start();
    let (registry, other) = (cluster.registry().await, cluster.registry().await);
    let ttl = SECOND * 4;
    let guard = registry.lock("k").ttl(ttl).acquire().await.unwrap();
    cluster.kill([0, 1]);
    // It outlives its ttl.
    tokio::time::sleep(ttl + SECOND / 2).await;
    guard.confirm().await.unwrap();
    cluster.kill([2]);
    let killed = Instant::now();
    let lost = tokio::time::timeout(SECOND * 30, until_lost(killed, || guard.remaining(), guard.lost()));
    let (loss, believed) = lost.await.expect("two nodes of five kept a hold");
    assert_eq!(*loss.kind(), ErrorKind::Lost(LossCause::Deadline));
    lateness::assert_within(believed, killed, "the loss");
    assert!(
        believed <= ttl + lateness::since(killed),
        "the lease of a renewal that was sent after the kill: {believed:?}"
    );
    assert!(guard.check().is_err());
    let error = other.lock("k").ttl(ttl).wait(Wait::None).acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Outage);
    cluster.restart([0, 1, 2]);
    let next = other.lock("k").ttl(ttl).acquire().await.unwrap();
    assert!(next.fence().unwrap().get() > guard.fence().unwrap().get());
    next.release().await.unwrap();
    cluster.assert_empty_within(ttl + SLACK).await;
}

#[tokio::test]
async fn a_node_that_comes_back_with_its_data_has_its_locks_and_its_vote() {
    let cluster = Cluster::start();
    let redlock = cluster.open().await;
    let hold = take(&redlock, &claim("k", LONG)).await;
    cluster.restart(0..5);
    let other = cluster.open().await;
    assert!(is_contended(&other, &claim("k", LONG)).await);
    // It must find its nodes again.
    let start = Instant::now();
    while redlock.renew(&[&hold]).await.remove(0).is_err() {
        lateness::assert_within(SLACK, start, "the answer");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(redlock.release(&hold).await.unwrap(), Released::Released);
    assert!(token(&take(&other, &claim("k", LONG)).await) > token(&hold));
}
