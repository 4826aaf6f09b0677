//! Accounts with just what locks need, and with one right less.

use std::sync::Arc;
use std::time::Instant;

use dlock::backends::redis::Redis;
use dlock::{Attempt, Backend, Clock, ErrorKind, Released, Signal, Stand, Standing};
use dlock_testkit::servers::{self, Instance, RedisCluster};

use crate::cluster::Move;
use crate::holds::{confirm, stand, take};
use crate::{MS, SECOND, blocking, claim, open, refusal, take_soon};

/// As docs/backends.md lists them.
const RIGHTS: &str = "~dl1:* &dl1:p:* -@all +eval +evalsha +set +get +del +incrby +pexpire +pttl +exists +time +zadd +zrem \
                      +zpopmin +hset +hget +hdel +publish +subscribe";
/// For kinds and `min_hold`.
const KINDS: &str = "+zrange +zcard +zscore +hgetall";
/// For the look at the server; without them dlock warns.
const LOOKS: &str = "+role +info +config|get +script|load";

async fn server() -> Instance {
    blocking(|| Instance::start(servers::Redis::default()).unwrap()).await
}

fn account(server: &Instance, name: &str, rights: &str) -> String {
    server.ask(&format!("ACL SETUSER {name} reset on >pw {rights}")).unwrap();
    format!("redis://{name}:pw@127.0.0.1:{}/", server.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listed_rights_are_enough_and_each_one_is_missed_by_its_name() {
    let server = server().await;
    let redis = open(&account(&server, "whole", &format!("{RIGHTS} {KINDS} {LOOKS}"))).await;
    let hold = take(&redis, &claim("k", SECOND)).await;
    let until = Stand::Until(Clock::system().now().after(60 * SECOND));
    let waiting = claim("k", SECOND);
    let Attempt::Contended(mut wake) = redis.try_acquire(&waiting, until).await.unwrap() else { panic!() };
    redis.release(&hold).await.unwrap();
    let news = tokio::time::timeout(SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    assert!(matches!(news, dlock::Signal::Granted(_)));

    let commands = RIGHTS.split_whitespace().filter_map(|right| right.strip_prefix('+'));
    for command in commands.filter(|command| !["publish", "subscribe"].contains(command)) {
        let url = account(&server, "less", &format!("{RIGHTS} {KINDS} {LOOKS} -{command}"));
        let error = Redis::connect(&url, &Clock::system()).await.expect_err(command);
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{command}: {error}");
        assert!(!error.is_retryable() && error.to_string().contains(&format!("`{command}`")), "{command}: {error}");
    }
    // What it can do without.
    for right in [
        "-subscribe",
        "-publish",
        "resetchannels",
        "-role",
        "-info",
        "-config|get",
        "-script|load",
        "-zrange",
        "-hgetall",
    ] {
        let redis = open(&account(&server, "lean", &format!("{RIGHTS} {KINDS} {LOOKS} {right}"))).await;
        take(&redis, &claim(right, SECOND)).await;
    }
    let url = account(&server, "elsewhere", &format!("{RIGHTS} {KINDS} {LOOKS} resetkeys ~other:*"));
    let error = Redis::connect(&url, &Clock::system()).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::PermissionDenied && error.to_string().contains("dl1:*"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_taken_later_is_told_too() {
    let server = server().await;
    let redis = open(&account(&server, "whole", &format!("{RIGHTS} {KINDS} {LOOKS}"))).await;
    let hold = take(&redis, &claim("k", SECOND)).await;
    for (right, named) in [("-set", Some("`set`")), ("-evalsha -eval +set", None)] {
        server.ask(&format!("ACL SETUSER whole {right}")).unwrap();
        let error = match named {
            Some(_) => redis.try_acquire(&claim("other", SECOND), Stand::No).await.unwrap_err(),
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

/// As docs/backends.md lists them for a cluster.
fn in_cluster() -> String {
    let rights = RIGHTS.replace("+publish +subscribe", "+spublish +ssubscribe");
    format!("{rights} {KINDS} {LOOKS} +asking +cluster|slots +cluster|myid")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_listed_rights_are_enough_in_a_cluster() {
    let cluster = Arc::new(
        blocking(|| {
            // With the servers' settings, so that a restart keeps them.
            let (all, blind) = (in_cluster(), in_cluster() + " -cluster|myid");
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
    let waiting = claim("k", SECOND);
    let mut wake = stand(&redis, &waiting).await;
    redis.release(&hold).await.unwrap();
    let news = tokio::time::timeout(SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    let Signal::Granted(hold) = news else { panic!("{news:?}") };
    redis.release(&hold).await.unwrap();

    let error = Redis::connect(&url("app").replace("p%2Cw", "other"), &Clock::system()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
    for node in &cluster.nodes {
        node.ask(&format!("ACL SETUSER less reset on >p,w {} -zpopmin", in_cluster())).unwrap();
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
