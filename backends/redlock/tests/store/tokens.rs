//! Tokens rise whichever majority gave them.

use dlock_contract::Backend;
use dlock_testkit::holds::{claim, token};
use fastrand::Rng;

use crate::cluster::{Cluster, SECOND, SLACK, seed, take, win};
use crate::names::FENCE;

#[tokio::test]
async fn a_token_is_known_to_every_later_majority() {
    let cluster = Cluster::start();
    // As with a clock that is an hour ahead.
    let ahead = dlock::Clock::system().wall_ms() * 1000 + 3_600_000_000;
    cluster.nodes[0].ask(&format!("SET {FENCE} {ahead}")).unwrap();
    let (one, other) = (cluster.open().await, cluster.open().await);
    // Whichever three answer first: until the one with the high counter was among them.
    let mut hold = take(&one, &claim("k", SECOND * 30)).await;
    for _ in 0..50 {
        if token(&hold) > ahead {
            break;
        }
        one.release(&hold).await.unwrap();
        cluster.nodes[4].kill9().unwrap();
        cluster.nodes[3].kill9().unwrap();
        hold = win(&one, &claim("k", SECOND * 30), SLACK).await;
    }
    assert!(token(&hold) > ahead);
    one.release(&hold).await.unwrap();
    cluster.restart([3, 4]);
    let before = token(&hold);
    cluster.kill([0, 1]);
    let next = win(&other, &claim("k", SECOND * 30), SLACK).await;
    assert!(token(&next) > before, "{} after {before}", token(&next));
    other.release(&next).await.unwrap();
}

#[tokio::test]
async fn tokens_rise_over_changing_majorities() {
    let cluster = Cluster::start();
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    // Counters far apart, so that only what is written back keeps the order.
    for node in &cluster.nodes {
        let ahead = dlock::Clock::system().wall_ms() * 1000 + random.u64(0..7_200_000_000);
        node.ask(&format!("SET {FENCE} {ahead}")).unwrap();
    }
    let clients = [cluster.open().await, cluster.open().await, cluster.open().await];
    let (mut last, mut down) = (0, Vec::new());
    for round in 0..60 {
        if random.u8(..3) > 0 {
            cluster.restart(down.drain(..));
            let mut nodes = [0, 1, 2, 3, 4];
            random.shuffle(&mut nodes);
            down = nodes[..random.usize(..3)].to_vec();
            cluster.kill(down.iter().copied());
        }
        let client = &clients[random.usize(..3)];
        let hold = win(client, &claim("k", SECOND * 30), SLACK * 2).await;
        assert!(token(&hold) > last, "DLOCK_SEED={seed}, round {round}: {} after {last}", token(&hold));
        last = token(&hold);
        client.release(&hold).await.unwrap();
        // A node that was down while it was freed comes back with it: in the way of nobody, since it is one of two.
    }
}
