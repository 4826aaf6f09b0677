//! A connection that is cut, slow or silent, and answers that nobody hears.

use std::sync::Arc;
use std::time::Duration;

use dlock::backends::zookeeper::client::Client;
use dlock::{Clock, Key, Registry, Wait};
use dlock_contract::{Attempt, Backend, Claim, Hold, Queue, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, stand, take, token, until};
use dlock_testkit::{Mode, Proxy, wait_until};
use futures::future::{join, join_all};

use crate::kit::{TTL, claim, granted, line, lock, long_claim, open, opened, own, path, process, raw, shared};

/// A store behind a proxy of its own, and a client around it.
async fn behind_a_proxy() -> (Proxy, dlock::backends::zookeeper::ZooKeeper, Client) {
    let (proxy, url) = Proxy::in_front_of(&shared()).unwrap();
    (proxy, opened(&url).await, raw(&shared()).await)
}

#[tokio::test]
async fn a_client_that_is_cut_off_for_less_than_its_ttl_keeps_its_locks() {
    // Connections that are refused, and a network that swallows everything.
    tokio::join!(cut_off_for_a_while(Mode::Refuse), cut_off_for_a_while(Mode::BLACKHOLE));
}

async fn cut_off_for_a_while(how: Mode) {
    let (proxy, one, raw) = behind_a_proxy().await;
    let other = process().await;
    let key = lock("short cut");
    // The client has a third of it to be back.
    let ttl = Duration::from_secs(6);
    let hold = take(&one, &claim_on(&key, ttl, |_| ())).await;
    proxy.set(how);
    let (clock, back) = (Clock::system(), hold.validity.from.after(ttl * 7 / 10));
    match clock.timeout_at(back, one.renew(&[&hold])).await {
        Some(mut answers) => {
            assert!(answers.remove(0).unwrap_err().is_retryable(), "a store that is cut off has answered")
        }
        None => assert_eq!(how, Mode::BLACKHOLE),
    }
    clock.sleep_until(back).await;
    proxy.set(Mode::Pass);
    let again = hold.validity.deadline();
    let late = || if clock.now() < again { "" } else { ", after its ttl: nothing is proven" };
    let nodes = line(&raw, &path(&one, &key)).await.len();
    assert_eq!(nodes, 1, "lost{}", late());
    loop {
        match one.renew(&[&hold]).await.remove(0) {
            Ok(standing) => {
                assert!(matches!(standing, Standing::Renewed(_)), "lost{}", late());
                break;
            }
            Err(error) => assert!(Clock::system().now() < again, "not back in time: {error}"),
        }
    }
    assert!(matches!(other.try_acquire(&claim(&key), Queue::Leave).await.unwrap(), Attempt::Contended(_)));
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_client_that_is_cut_off_for_longer_has_lost_its_locks_before_others_get_them() {
    let (proxy, one, _) = behind_a_proxy().await;
    let other = process().await;
    let key = lock("long cut");
    // A busy machine opens the waiter's session slowly, and the hold may be over by then.
    let warm = take(&other, &claim(&lock("warm"))).await;
    other.release(&warm).await.unwrap();
    // The waiter of a busy machine comes within it, and the test waits for its end.
    let ttl = Duration::from_secs(8);
    let hold = take(&one, &claim_on(&key, ttl, |_| ())).await;
    let waiter = claim(&key);
    let mut wake = stand(&other, &waiter).await;
    proxy.set(Mode::BLACKHOLE);
    let dlock_contract::Signal::Granted(next) = wake.signal.as_mut().unwrap().await.unwrap() else { panic!() };
    assert!(Clock::system().now() >= hold.validity.deadline(), "the lock was granted while its holder believed in it");
    assert!(token(&next) > token(&hold));
    Clock::system().sleep_until(hold.validity.from.after(ttl * 3 / 2)).await;
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    proxy.set(Mode::Pass);
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
    assert!(matches!(confirm(&other, &next).await, Standing::Renewed(_)));
    other.release(&next).await.unwrap();
    // It finds its store again, in a new session.
    wait_until("a lock in a new session", async || match one.try_acquire(&claim(&key), Queue::Leave).await {
        Ok(Attempt::Acquired(hold)) => one.release(&hold).await.is_ok(),
        _ => false,
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_node_whose_making_had_no_answer_is_found_again() {
    let (proxy, one, raw) = behind_a_proxy().await;
    let key = lock("lost reply");
    let claim = long_claim(&key);
    // A line without a node: the parents are there.
    let warm = take(&one, &long_claim(&key)).await;
    one.release(&warm).await.unwrap();
    make_without_an_answer(&proxy, &one, &claim, (&raw, 1)).await;
    proxy.set(Mode::Pass);
    let hold = found_again(&one, &claim).await;
    assert_eq!(line(&raw, &path(&one, &key)).await.len(), 1, "it has two nodes");
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
}

/// Makes the node of a claim by a request whose answer is lost, so that the lock's line has `nodes`. A request may not arrive: on a
/// slow machine the client has just lost its connection. Then the claim is in doubt, and would first look for its node.
async fn make_without_an_answer(
    proxy: &Proxy,
    one: &dlock::backends::zookeeper::ZooKeeper,
    claim: &Arc<Claim>,
    (raw, nodes): (&Client, usize),
) {
    let warm = claim_on(&lock("warm"), claim.ttl, |_| ());
    wait_until("the request to be done", async || {
        proxy.set(Mode::DropReplies);
        assert!(one.try_acquire(claim, until()).await.is_err(), "the reply was not dropped");
        let is_done = line(raw, &path(one, &claim.key)).await.len() == nodes;
        if !is_done {
            proxy.set(Mode::Pass);
            let _ = one.abandon(claim).await;
            if let Ok(Attempt::Acquired(hold)) = one.try_acquire(&warm, until()).await {
                let _ = one.release(&hold).await;
            }
        }
        is_done
    })
    .await
    .unwrap();
}

/// The hold of a claim whose node was made by a request without an answer.
async fn found_again(one: &dlock::backends::zookeeper::ZooKeeper, claim: &Arc<Claim>) -> Hold {
    let mut hold = None;
    wait_until("the node to be found", async || {
        if let Ok(Attempt::Acquired(found)) = one.try_acquire(claim, until()).await {
            hold = Some(found);
        }
        hold.is_some()
    })
    .await
    .unwrap();
    hold.unwrap()
}

#[tokio::test]
async fn a_writer_whose_node_is_older_than_anothers_hold_has_the_higher_token() {
    let (proxy, one, raw) = behind_a_proxy().await;
    let (other, key) = (process().await, lock("old node"));
    let write = || claim_on(&key, TTL * 20, |claim| claim.mode = dlock::Mode::Write);
    // Its first request for this lock is then the one that makes the node.
    let warm = take(&one, &write()).await;
    assert_eq!(one.release(&warm).await.unwrap(), Released::Released);
    let first = take(&other, &write()).await;
    let waits = write();
    let mut wake = stand(&other, &waits).await;
    let claim = write();
    make_without_an_answer(&proxy, &one, &claim, (&raw, 3)).await;
    assert_eq!(other.release(&first).await.unwrap(), Released::Released);
    let second = granted(&other, &waits, &mut wake).await;
    assert_eq!(other.release(&second).await.unwrap(), Released::Released);
    proxy.set(Mode::Pass);
    let hold = found_again(&one, &claim).await;
    assert!(token(&hold) > token(&second), "{} after {}", token(&hold), token(&second));
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_node_whose_making_had_no_answer_is_deleted_by_an_abandon() {
    let (proxy, one, raw) = behind_a_proxy().await;
    let key = lock("lost abandon");
    let warm = take(&one, &long_claim(&key)).await;
    one.release(&warm).await.unwrap();
    let claim = long_claim(&key);
    make_without_an_answer(&proxy, &one, &claim, (&raw, 1)).await;
    proxy.set(Mode::Pass);
    wait_until("the abandon", async || one.abandon(&claim).await.is_ok()).await.unwrap();
    assert!(line(&raw, &path(&one, &key)).await.is_empty());
}

#[tokio::test]
async fn attempts_dropped_anywhere_leave_nothing() {
    let one = Arc::new(process().await);
    let raw = raw(&shared()).await;
    let (kept, key) = (lock("kept"), lock("dropped"));
    let hold = take(&*one, &long_claim(&kept)).await;
    let mut outcomes = [0, 0];
    while outcomes[0] <= 20 || outcomes[0] + outcomes[1] < 150 {
        assert!(outcomes[1] < 5000, "hardly any was dropped in time: {outcomes:?}");
        let claim = long_claim(&key);
        let point = Duration::from_micros(fastrand::u64(..2500));
        let asked = tokio::time::timeout(point, one.try_acquire(&claim, until())).await;
        outcomes[usize::from(asked.is_ok())] += 1;
        one.abandon(&claim).await.unwrap();
    }
    assert!(line(&raw, &path(&one, &key)).await.is_empty());
    assert!(matches!(confirm(&*one, &hold).await, Standing::Renewed(_)));
}

#[tokio::test]
async fn tokens_rise_over_a_restart() {
    let server = own();
    let one = opened(&server.url()).await;
    let key = lock("restart");
    let long = |key: &_| claim_on(key, Duration::from_secs(30), |_| ());
    let hold = take(&one, &long(&key)).await;
    server.kill9().unwrap();
    let error = one.try_acquire(&long(&key), Queue::Leave).await.unwrap_err();
    assert!(*error.kind() == dlock::ErrorKind::Outage && error.is_retryable(), "{error}");
    server.restart().unwrap();
    wait_until("the hold", async || matches!(one.renew(&[&hold]).await.remove(0), Ok(Standing::Renewed(_))))
        .await
        .unwrap();
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    let next = take(&one, &long(&key)).await;
    assert!(token(&next) > token(&hold));
}

#[tokio::test]
async fn one_reachable_host_is_enough() {
    let live = shared().replace("zk://", "");
    for url in [format!("zk://127.0.0.1:1,{live}"), format!("zk://{live},127.0.0.1:1")] {
        let one = opened(&url).await;
        let hold = take(&one, &claim(&lock("one of"))).await;
        one.release(&hold).await.unwrap();
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("zk://{}", listener.local_addr().unwrap());
    let refused = <[_; 2]>::from(join(open("zk://127.0.0.1:1"), open(&silent)).await).map(|failed| failed.unwrap_err());
    for error in &refused {
        assert!(*error.kind() == dlock::ErrorKind::Outage && error.is_retryable(), "{error}");
    }
    assert!(refused[1].message().contains("none answered within 4s"), "{}", refused[1]);
}

/// The client library tries the hosts in random order, and one of them several times. So this is tried often.
#[tokio::test]
async fn a_silent_host_beside_live_ones_fails_no_opening() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let live = shared().replace("zk://", "");
    let url = format!("zk://{},{live},{live}", silent.local_addr().unwrap());
    for opened in join_all((0..80).map(|_| open(&url))).await {
        opened.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_is_too_far_away_for_the_shortest_session_is_opened_with_a_longer_one() {
    let (proxy, url) = Proxy::in_front_of(&shared()).unwrap();
    let way = Duration::from_millis(150);
    proxy.set(Mode::Delay { to_server: way, to_client: way });
    let one = opened(&url).await;
    assert!(one.profile().ttl.min > process().await.profile().ttl.min);
    let hold = take(&one, &claim_on(&lock("far"), TTL * 10, |_| ())).await;
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    // The first lock of a namespace, of which no node is there, in one attempt. The engine waits for its answer no longer than a
    // ttl. On a busy machine a first one may be too late.
    let one = Arc::new(one);
    for trial in 1.. {
        let registry = Registry::new();
        registry.configure(|defaults| defaults.namespace = format!("far{}", fastrand::u64(..))).unwrap();
        registry.install_shared("far", one.clone()).unwrap();
        match registry.lock(Key::text("first")).backend("far").ttl(TTL).wait(Wait::None).acquire().await {
            Ok(guard) => {
                guard.release().await.unwrap();
                break;
            }
            Err(error) => assert!(trial < 5, "{error}"),
        }
    }
}
