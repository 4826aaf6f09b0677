//! Accounts with just what locks need, and with one right less.

use std::sync::Arc;
use std::time::Instant;

use dlock::backends::redis::Redis;
use dlock::{Clock, ErrorKind};
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::{claim, confirm, stand, take};
use dlock_testkit::servers::{self, Instance, Make, RedisCluster};

use super::cluster::Move;
use super::replicas::with_replica;
use super::{MS, SECOND, blocking, handed, open, refusal, take_soon, with};
use crate::names::OURS;
use crate::rights;

pub(super) async fn server() -> Instance {
    blocking(|| Instance::start(servers::Redis::default()).unwrap()).await
}

pub(super) fn account(server: &Instance, name: &str, rights: &str) -> String {
    server.ask(&format!("ACL SETUSER {name} reset on >pw {rights}")).unwrap();
    format!("redis://{name}:pw@127.0.0.1:{}/", server.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listed_rights_are_enough_and_a_missing_one_is_named() {
    let server = server().await;
    let redis = open(&account(&server, "whole", &rights::lines(1..=5))).await;
    let hold = take(&redis, &claim("k", 60 * SECOND)).await;
    let until = Queue::until(Clock::system().now().after(60 * SECOND));
    let waiting = claim("k", 60 * SECOND);
    let Attempt::Contended(mut wake) = redis.try_acquire(&waiting, until).await.unwrap() else { panic!() };
    redis.release(&hold).await.unwrap();
    handed(&redis, &waiting, &mut wake).await;

    let needed = rights::lines([2, 3]);
    let commands = needed.split_whitespace().filter_map(|right| right.strip_prefix('+'));
    for command in commands.filter(|command| !["publish", "subscribe", "pubsub|numsub"].contains(command)) {
        let url = account(&server, "less", &format!("{} -{command}", rights::lines(1..=5)));
        let error = Redis::connect(&url, &Clock::system()).await.expect_err(command);
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{command}: {error}");
        assert!(!error.is_retryable() && error.to_string().contains(&format!("`{command}`")), "{command}: {error}");
    }
    // Rights that it can do without.
    for right in [
        "-subscribe",
        "-publish",
        "-pubsub|numsub",
        "resetchannels",
        "-role",
        "-info",
        "-config|get",
        "-script|load",
        "-zrange",
        "-hgetall",
    ] {
        let redis = open(&account(&server, "lean", &format!("{} {right}", rights::lines(1..=5)))).await;
        take(&redis, &claim(right, 60 * SECOND)).await;
    }
    let url = account(&server, "elsewhere", &format!("{} resetkeys ~other:*", rights::lines(1..=5)));
    let error = Redis::connect(&url, &Clock::system()).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::PermissionDenied && error.to_string().contains(OURS), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_taken_away_later_is_named_too() {
    let server = server().await;
    let redis = open(&account(&server, "whole", &rights::lines(1..=5))).await;
    let hold = take(&redis, &claim("k", 60 * SECOND)).await;
    for (right, named) in [("-set", Some("`set`")), ("-evalsha -eval +set", None)] {
        server.ask(&format!("ACL SETUSER whole {right}")).unwrap();
        let error = match named {
            Some(_) => redis.try_acquire(&claim("other", 60 * SECOND), Queue::Leave).await.unwrap_err(),
            None => redis.release(&hold).await.unwrap_err(),
        };
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(named.is_none_or(|name| error.to_string().contains(name)), "{error}");
    }
    // Inside of a script the server does not say which one it is.
    server.ask("ACL SETUSER whole +evalsha +eval -pexpire").unwrap();
    let error = redis.renew(&[&hold]).await.remove(0).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_listed_rights_are_enough_in_a_cluster() {
    let cluster = Arc::new(
        blocking(|| {
            // With the servers' settings, so that a restart keeps them.
            let (all, blind) = (rights::of_cluster(1..=5), rights::of_cluster(1..=5) + " -cluster|myid");
            let mut options = Vec::new();
            for (name, rights) in [("app", &all), ("blind", &blind)] {
                options.extend(["--user", name, "on", ">p,w"]);
                options.extend(rights.split_whitespace());
            }
            RedisCluster::start(3, 0, false, &options)
        })
        .await
        .unwrap(),
    );
    let url = |user: &str| cluster.url().replace("://", &format!("://{user}:p%2Cw@"));
    let (redis, blind) = (open(&url("app")).await, open(&url("blind")).await);
    let hold = take(&redis, &claim("k", SECOND * 60)).await;
    let waiting = claim("k", 60 * SECOND);
    let mut wake = stand(&redis, &waiting).await;
    redis.release(&hold).await.unwrap();
    let hold = handed(&redis, &waiting, &mut wake).await;
    redis.release(&hold).await.unwrap();

    let error = Redis::connect(&url("app").replace("p%2Cw", "other"), &Clock::system()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
    for node in &cluster.nodes {
        node.ask(&format!("ACL SETUSER less reset on >p,w {} -zpopmin", rights::of_cluster(1..=5))).unwrap();
    }
    let error = Redis::connect(&url("less"), &Clock::system()).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::PermissionDenied && error.to_string().contains("`zpopmin`"), "{error}");

    // A slot on its way: its new server is to be asked.
    let hold = take(&redis, &claim("moved", SECOND * 60)).await;
    let moving = cluster.clone();
    let step = blocking(move || {
        let step = Move::of(&moving, "moved");
        step.begin();
        step.carry("");
        step
    })
    .await;
    let stats = || cluster.nodes[step.to].ask("INFO commandstats").unwrap();
    assert!(!stats().contains("cmdstat_asking"));
    assert!(matches!(confirm(&redis, &hold).await, Standing::Renewed(_)));
    assert!(stats().contains("cmdstat_asking"));
    let step = blocking(move || {
        step.finish();
        step
    })
    .await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);

    // The guard sees a restart, unless the account may not ask who the server is.
    take(&blind, &claim("blind", SECOND * 60)).await;
    let restarted = cluster.clone();
    blocking(move || restarted.nodes[step.to].restart().unwrap()).await;
    let end = Instant::now() + SECOND * 30;
    loop {
        let error = refusal(&redis, &claim("moved", SECOND)).await;
        if error.to_string().contains("restart_guard") {
            break;
        }
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(20 * MS).await;
    }
    take_soon(&blind, &claim("moved", SECOND), SECOND * 30).await;
}

/// How many times a command was run, and how many times it was refused.
pub(crate) fn calls(server: &Instance, command: &str) -> (u64, u64) {
    let stats = server.ask("INFO commandstats").unwrap();
    let start = format!("cmdstat_{command}:");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default();
    let field = |name| line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    (field("calls").unwrap_or(0), field("rejected_calls").unwrap_or(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_own_compare_and_delete_needs_the_right_that_is_listed() {
    for (make, command) in [(Make::Redis8, "delex"), (Make::Valkey, "delifeq")] {
        let server = blocking(move || Instance::start(servers::Redis { make, ..servers::Redis::default() }).unwrap());
        let server = server.await;
        let exact = rights::lines(1..=5);
        let right = rights::also(&format!("+{command}")).to_owned();
        for (name, rights, expected) in [("with", format!("{exact} {right}"), (1, 0)), ("less", exact, (1, 1))] {
            let redis = open(&account(&server, name, &rights)).await;
            let hold = take(&redis, &claim("k", 60 * SECOND)).await;
            assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
            assert_eq!(calls(&server, command), expected, "{command} {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_replicas_needs_the_right_that_is_listed() {
    let (server, _replica) = blocking(with_replica).await;
    let exact = format!("{} {}", rights::lines(1..=5), rights::also("+wait"));
    let redis = open(&with(&account(&server, "whole", &exact), "wait_replicas=1")).await;
    let hold = take_soon(&redis, &claim("k", 60 * SECOND), 60 * SECOND).await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    let less = with(&account(&server, "less", &rights::lines(1..=5)), "wait_replicas=1");
    let error = Redis::connect(&less, &dlock::Clock::system()).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::PermissionDenied && error.to_string().contains("`wait`"), "{error}");
}

/// The release of a lock for which somebody waits, when the account has lost a right that it had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_cannot_be_handed_over_is_freed_anyway() {
    let server = server().await;
    for right in ["publish", "set", "incrby"] {
        let url = account(&server, "whole", &rights::lines(1..=5));
        let (one, two) = (open(&url).await, open(&server.url()).await);
        let hold = take(&one, &claim(right, 60 * SECOND)).await;
        let until = Queue::until(Clock::system().now().after(60 * SECOND));
        let waiting = claim(right, 60 * SECOND);
        let Attempt::Contended(wake) = two.try_acquire(&waiting, until).await.unwrap() else { panic!() };
        server.ask(&format!("ACL SETUSER whole -{right}")).unwrap();
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released, "{right}");
        assert_eq!(server.ask(&format!("EXISTS {}", super::name(right))).unwrap(), "0", "{right}");
        // Nothing was told; who waits finds out by asking.
        let told = wake.signal.and_then(futures::FutureExt::now_or_never);
        assert!(told.is_none(), "{right}: {told:?}");
        let Attempt::Acquired(hold) = two.try_acquire(&waiting, until).await.unwrap() else { panic!("{right}") };
        assert_eq!(two.release(&hold).await.unwrap(), Released::Released, "{right}");
    }
}

/// Commands that only keep the queue in order run after a lock was granted. Without the right for them the lock is not
/// taken away again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_stands_although_the_queue_cannot_be_updated() {
    let server = server().await;
    for right in ["hset", "hdel"] {
        let url = account(&server, "whole", &rights::lines(1..=5));
        let (one, two) = (open(&url).await, open(&server.url()).await);
        let hold = take(&one, &claim(right, 60 * SECOND)).await;
        let (first, second) = (claim(right, 60 * SECOND), claim(right, 60 * SECOND));
        let mut wake = stand(&two, &first).await;
        let _later = stand(&two, &second).await;
        server.ask(&format!("ACL SETUSER whole -{right}")).unwrap();
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released, "{right}");
        let given = handed(&two, &first, &mut wake).await;
        assert!(matches!(confirm(&two, &given).await, Standing::Renewed(_)), "{right}");
        assert_eq!(two.release(&given).await.unwrap(), Released::Released, "{right}");
        two.abandon(&second).await.unwrap();
    }
}
