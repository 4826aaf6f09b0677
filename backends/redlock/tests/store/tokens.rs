//! Tokens rise whichever majority gave them.

use std::time::{Duration, Instant};

use dlock_contract::{Backend, Released};
use dlock_testkit::holds::{claim, token};
use dlock_testkit::lateness;
use fastrand::Rng;

use crate::cluster::{Cluster, SECOND, SLACK, seed, take, win};
use crate::names::{FENCE, K};

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

/// Of other keys too, which draw from the same counters.
#[tokio::test]
async fn a_lock_that_nobody_else_wants_is_one_request_to_take_and_one_to_release() {
    const CYCLES: u64 = 30;
    let cluster = Cluster::start();
    let redlock = cluster.open().await;
    // So long that each node is waited for by half a second.
    let ttl = SECOND * 300;
    let cycle = async |key: &str| {
        let hold = take(&redlock, &claim(key, ttl)).await;
        assert_eq!(redlock.release(&hold).await.unwrap(), Released::Released);
        token(&hold)
    };
    // The first request over a connection raises the counters to clocks that differ.
    let mut last = cycle("k").await;
    cluster.nodes.iter().for_each(|node| drop(node.ask(&format!("SET {FENCE} {}", last + 1_000_000)).unwrap()));
    let calls = |command| (0..5).map(|node| cluster.calls(node, command)).collect::<Vec<_>>();
    let commands = ["evalsha", "set", "incrby", "del"];
    for _ in 0..10 {
        let before = commands.map(calls);
        let mut slowest = Duration::ZERO;
        for number in 0..CYCLES {
            let begin = Instant::now();
            let token = cycle(["k", "other", "third"][number as usize % 3]).await;
            slowest = slowest.max(begin.elapsed());
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        // A node that does not answer for so long may be passed over, and a lock may be taken twice.
        if slowest >= SECOND / 2 {
            continue;
        }
        for (command, before) in commands.into_iter().zip(before) {
            // The script is the release. The only value that is set is the lock's: no token is written back.
            let now = calls(command);
            let since: Vec<_> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
            assert_eq!(since, [CYCLES; 5], "{command}");
        }
        return;
    }
    panic!("the nodes were slow each time: nothing is proven");
}

/// Only the script can begin a counter anew.
#[tokio::test]
async fn tokens_rise_where_nodes_have_lost_their_counters() {
    let cluster = Cluster::start();
    let redlock = cluster.open().await;
    let mut last = 0;
    for lost in [0..1, 1..3, 0..3, 0..5] {
        for down in [&[3, 4][..], &[]] {
            cluster.kill(down.iter().copied());
            let up = lost.clone().filter(|node| !down.contains(node));
            up.for_each(|node| drop(cluster.nodes[node].ask(&format!("DEL {FENCE}")).unwrap()));
            let hold = win(&redlock, &claim("k", SECOND * 30), SLACK).await;
            assert!(token(&hold) > last, "{} after {last}, without the counters of {lost:?}", token(&hold));
            last = token(&hold);
            redlock.release(&hold).await.unwrap();
            cluster.restart(down.iter().copied());
        }
    }
}

/// A program of the version before: its numbers are never below the node's clock, and it writes the highest back in any
/// case. `None` if it did not get a majority of these nodes.
fn take_as_before(cluster: &Cluster, nodes: &[usize], value: &str) -> Option<u64> {
    const TAKE: &str = "local t=redis.call('TIME') local us=t[1]*1000000+t[2] \
        if redis.call('EXISTS',KEYS[1])==1 then return 0 end \
        redis.call('SET',KEYS[1],ARGV[1],'PX',30000) \
        local f=redis.call('INCRBY',KEYS[2],'1') \
        if f<us then f=us redis.call('SET',KEYS[2],string.format('%.0f',f)) end return f";
    const CONFIRM: &str = "if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end \
        if tonumber(redis.call('GET',KEYS[2]))<tonumber(ARGV[2]) then redis.call('SET',KEYS[2],ARGV[2]) end return 1";
    let run = |node: usize, script: &str, token: u64| -> u64 {
        let mut raw = redis::Client::open(cluster.nodes[node].url()).unwrap().get_connection().unwrap();
        redis::Script::new(script).key(K).key(FENCE).arg(value).arg(token).invoke(&mut raw).unwrap()
    };
    let drawn: Vec<_> = nodes.iter().map(|node| run(*node, TAKE, 0)).filter(|drawn| *drawn > 0).collect();
    let token = *drawn.iter().max().filter(|_| drawn.len() >= 3)?;
    let kept = nodes.iter().filter(|node| run(**node, CONFIRM, token) == 1).count();
    (kept >= 3).then_some(token)
}

#[tokio::test]
async fn tokens_rise_beside_programs_that_write_every_token_back() {
    let cluster = Cluster::start();
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let clients = [cluster.open().await, cluster.open().await];
    let (mut last, mut of_each) = (0, [0; 2]);
    for round in 0..60 {
        let mut nodes = [0, 1, 2, 3, 4];
        random.shuffle(&mut nodes);
        let (down, up) = nodes.split_at(random.usize(..3));
        let start = Instant::now();
        let is_old = random.bool();
        let next = if is_old {
            loop {
                let value = format!("{:032x} h=old p=1 @{round}", random.u128(..));
                let next = take_as_before(&cluster, up, &value);
                cluster.nodes.iter().for_each(|node| drop(node.ask(&format!("DEL {K}")).unwrap()));
                if let Some(next) = next {
                    break next;
                }
                lateness::assert_within(SLACK, start, "a grant");
            }
        } else {
            cluster.kill(down.iter().copied());
            let client = &clients[random.usize(..2)];
            let hold = win(client, &claim("k", SECOND * 30), SLACK * 2).await;
            client.release(&hold).await.unwrap();
            cluster.restart(down.iter().copied());
            token(&hold)
        };
        assert!(next > last, "DLOCK_SEED={seed}, round {round}, old {is_old}: {next} after {last}");
        last = next;
        of_each[usize::from(is_old)] += 1;
    }
    assert!(of_each.iter().all(|grants| *grants > 5), "{of_each:?}: nothing is proven");
}
