//! Wall clocks that jump: Redis measures leases by them.

use std::time::{Duration, Instant};

use dlock::Clock;
use dlock::backends::redlock::Redlock;
use dlock_contract::{Attempt, Backend, Hold, Released, Standing};
use dlock_testkit::holds::{claim, token};
use dlock_testkit::{lateness, wait_until};

use crate::cluster::{Cluster, SECOND, SLACK, attempt, confirm, is_contended, seed, take, win};
use crate::restart::{assert_tokens_rise, seen_while};

const TTL: Duration = Duration::from_secs(30);
/// Far more than the ttl.
const HOUR: i64 = 3600;

/// Until the slowest node has it too.
async fn wait_for_all(cluster: &Cluster) {
    let start = Instant::now();
    while cluster.left().len() < 5 {
        lateness::assert_within(SLACK, start, &format!("a grant by all nodes ({:?} have it)", cluster.left()));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_minority_that_jumps_forward_changes_nothing_for_a_lock_that_all_have_granted() {
    for jumped in [&[2][..], &[0, 3]] {
        let cluster = Cluster::with_clocks();
        let jump = |seconds| cluster.set_ahead(jumped.iter().copied(), seconds);
        let (one, other) = (cluster.open().await, cluster.open().await);
        let hold = take(&one, &claim("k", TTL)).await;
        wait_for_all(&cluster).await;
        jump(HOUR);
        assert_eq!(cluster.left().len(), 5 - jumped.len(), "their leases have ended: {:?}", cluster.left());
        for _ in 0..20 {
            assert!(is_contended(&other, &claim("k", TTL)).await);
            assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
        }
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
        // The counters of those who jumped are an hour ahead. Tokens rise with them and without them, and when they are back.
        let mut last = token(&hold);
        for (ahead, down) in [(HOUR, [1, 4]), (HOUR, [0, 3]), (0, [1, 2]), (0, [2, 3]), (0, [0, 4])] {
            jump(ahead);
            cluster.kill(down);
            let hold = win(&other, &claim("k", TTL), SLACK).await;
            assert!(token(&hold) > last, "{} after {last}, {jumped:?} {ahead} s ahead, without {down:?}", token(&hold));
            last = token(&hold);
            assert_eq!(other.release(&hold).await.unwrap(), Released::Released);
            cluster.restart(down);
        }
    }
}

#[tokio::test]
async fn a_minority_that_jumps_back_keeps_nobody_waiting() {
    let cluster = Cluster::with_clocks();
    let (one, other) = (cluster.open().await, cluster.open().await);
    // Long enough for a busy machine to see it on all nodes before it is over.
    let ttl = SECOND * 4;
    let dead = take(&one, &claim("k", ttl)).await;
    wait_for_all(&cluster).await;
    let start = Instant::now();
    cluster.set_ahead([1, 4], -HOUR);
    let next = win(&other, &claim("k", TTL), ttl + SLACK).await;
    assert!(token(&next) > token(&dead));
    lateness::assert_within(ttl + SLACK, start, "the next grant");
    assert_eq!(other.release(&next).await.unwrap(), Released::Released);
    // There the dead one's lease would last for another hour.
    let elsewhere = async || cluster.left().iter().all(|left| left.starts_with('1') || left.starts_with('4'));
    wait_until("the other nodes have freed it", elsewhere).await.unwrap();
}

/// As README.md says: with the node whose lease has ended, and those that never had one, others are a majority.
#[tokio::test]
async fn one_clock_that_jumps_forward_is_enough_where_only_a_bare_majority_has_granted() {
    let cluster = Cluster::with_clocks();
    let (one, other) = (cluster.open().await, cluster.open().await);
    cluster.kill([3, 4]);
    let hold = take(&one, &claim("k", TTL)).await;
    cluster.restart([3, 4]);
    let refused = Instant::now();
    while refused.elapsed() < SECOND / 2 {
        assert!(!matches!(attempt(&other, &claim("k", TTL)).await, Ok(Attempt::Acquired(_))));
    }
    two_hold(&cluster, [2], (&one, &hold), &other).await;
}

#[tokio::test]
async fn a_majority_that_jumps_forward_is_enough_in_any_case() {
    let cluster = Cluster::with_clocks();
    let (one, other) = (cluster.open().await, cluster.open().await);
    let hold = take(&one, &claim("k", TTL)).await;
    wait_for_all(&cluster).await;
    assert!(is_contended(&other, &claim("k", TTL)).await);
    two_hold(&cluster, [0, 1, 2], (&one, &hold), &other).await;
}

/// Then the token is what is left, and the first holder is told by its next renewal.
async fn two_hold(
    cluster: &Cluster,
    jumped: impl IntoIterator<Item = usize>,
    (one, hold): (&Redlock, &Hold),
    other: &Redlock,
) {
    cluster.set_ahead(jumped, HOUR);
    let next = win(other, &claim("k", TTL), SLACK).await;
    assert!(hold.validity.deadline() > Clock::system().now(), "the first one still believes");
    assert!(token(&next) > token(hold), "a resource that looks at tokens refuses the first one");
    assert_eq!(confirm(one, hold).await, Standing::Lost);
    assert_eq!(one.release(hold).await.unwrap(), Released::NotOwner);
    assert!(matches!(confirm(other, &next).await, Standing::Renewed(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_whatever_the_clocks_do() {
    const LENGTH: Duration = Duration::from_secs(10);
    let cluster = Cluster::with_clocks();
    let seed = seed();
    let mut jumps = 0;
    let seen = seen_while(&cluster, seed, LENGTH, async |random| {
        tokio::time::sleep(Duration::from_millis(random.u64(50..500))).await;
        // Not far back: leases of what was ahead would last for as long.
        cluster.set_ahead([random.usize(..5)], random.i64(-1..3) + 2 * jumps);
        jumps += 1;
    });
    let seen = seen.await;
    println!("{} holds, {jumps} jumps", seen.len());
    assert!(seen.len() > 20 && jumps > 10, "too little happened: nothing is proven");
    assert_tokens_rise(&seen, seed);
}
