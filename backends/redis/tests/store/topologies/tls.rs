//! TLS with certificates of an own authority.

use std::time::Duration;

use dlock::backends::redis::Redis;
use dlock::{Clock, ErrorKind};
use dlock_contract::{Attempt, Backend, Hold, Released, Standing};
use dlock_testkit::holds::{claim, take, token};
use dlock_testkit::servers::{RedisCluster, RedisSentinels, RedisTls};

use super::cluster::{key_at, until};
use super::sentinel::{DOWN_AFTER_MS, fail_over};
use super::{MS, blocking, handed, name, open, standing_soon, take_soon, with};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_show_certificates_and_unknown_ones_are_refused() {
    let tls = blocking(|| RedisTls::start().unwrap()).await;
    let ([ca, cert, key], port) = (["ca.pem", "client.pem", "client.key"].map(|name| tls.file(name)), tls.port);
    let good = format!("rediss://127.0.0.1:{port}/1?ca={ca}&cert={cert}&key={key}");
    let redis = open(&good).await;
    let hold = take(&redis, &claim("k", LIMIT)).await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(format!("{redis:?}"), format!("Redis(127.0.0.1:{port}/1)"));

    let stranger = tls.file("stranger.pem");
    for (url, kind) in [
        // An authority that has not signed it; the system's; no certificate of ours.
        (format!("rediss://127.0.0.1:{port}/?ca={stranger}&cert={cert}&key={key}"), ErrorKind::Outage),
        (format!("rediss://127.0.0.1:{port}/"), ErrorKind::Outage),
        (format!("rediss://127.0.0.1:{port}/?ca={ca}"), ErrorKind::Outage),
        // One side speaks TLS and the other does not.
        (format!("rediss://127.0.0.1:{}/?ca={ca}", tls.server.port()), ErrorKind::Outage),
        (format!("redis://127.0.0.1:{port}/"), ErrorKind::Outage),
    ] {
        let error = Redis::connect(&url, &Clock::system()).await.expect_err(&url);
        assert_eq!(*error.kind(), kind, "{url}: {error}");
        assert!(!format!("{error:?}").contains(&ca), "{error:?}");
    }
    for url in [
        format!("rediss://127.0.0.1:{port}/?ca={key}"),
        format!("rediss://127.0.0.1:{port}/?ca=/nowhere/at/all"),
        format!("rediss://127.0.0.1:{port}/?cert={cert}"),
        format!("redis://127.0.0.1:{port}/?ca={ca}"),
    ] {
        let error = Redis::connect(&url, &Clock::system()).await.expect_err(&url);
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{url}: {error}");
        assert!(!format!("{error:?}").contains("nowhere"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_servers_speak_tls_over_a_failover() {
    let set = blocking(|| RedisSentinels::start_with_tls(1, DOWN_AFTER_MS).unwrap()).await;
    refuses_strangers(&set.url()).await;
    let url = with(&set.url(), "failover_guard=off&restart_guard=off");
    let (redis, other) = (open(&url).await, open(&url).await);
    let hold = take(&redis, &claim("before", LIMIT)).await;
    let next = hand_on(&redis, &hold, &other, "before").await;
    assert_eq!(other.release(&next).await.unwrap(), Released::Released);

    let set = fail_over(set).await;
    let hold = take_soon(&redis, &claim("after", LIMIT), LIMIT).await;
    let next = hand_on(&redis, &hold, &other, "after").await;
    let asked = format!("EXISTS {}", name("after"));
    assert_eq!(set.servers[1].ask(&asked).unwrap(), "1", "the new primary has granted it");
    assert!(matches!(standing_soon(&other, &next, LIMIT).await, Standing::Renewed(_)));
    assert_eq!(other.release(&next).await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_speaks_tls_over_a_failover() {
    let cluster = blocking(|| RedisCluster::start_with_tls(3, 1).unwrap()).await;
    refuses_strangers(&cluster.url()).await;
    // The guard would keep the slots of the failed one back for a while.
    let url = with(&cluster.url(), "failover_guard=off");
    let (redis, other) = (open(&url).await, open(&url).await);
    let mut holds = Vec::new();
    for node in 0..3 {
        let key = key_at(&cluster, node);
        let hold = take(&redis, &claim(&key, LIMIT)).await;
        let next = hand_on(&redis, &hold, &other, &key).await;
        // A pushed grant lasts for a moment only, until its first renewal.
        assert!(matches!(standing_soon(&other, &next, LIMIT).await, Standing::Renewed(_)));
        holds.push((next, key));
    }
    let cluster = blocking(move || {
        cluster.wait_for_replica(3, 0).unwrap();
        cluster.nodes[0].kill9().unwrap();
        cluster
    })
    .await;
    for (hold, key) in holds {
        assert!(matches!(standing_soon(&other, &hold, LIMIT).await, Standing::Renewed(_)));
        let next = hand_on(&other, &hold, &redis, &key).await;
        assert_eq!(redis.release(&next).await.unwrap(), Released::Released);
    }
    assert!(blocking(move || cluster.nodes[3].ask("ROLE").unwrap()).await.starts_with("master"));
}

/// Releases a lock to a waiter in its queue, which hears of it by a push.
async fn hand_on(from: &Redis, hold: &Hold, to: &Redis, key: &str) -> Hold {
    let waiting = claim(key, LIMIT);
    let end = tokio::time::Instant::now() + LIMIT;
    let mut wake = loop {
        // After a failover the connection for pushes is opened again.
        if let Ok(Attempt::Contended(wake)) = to.try_acquire(&waiting, until()).await
            && wake.signal.is_some()
        {
            break wake;
        }
        assert!(tokio::time::Instant::now() < end, "no pushes within {LIMIT:?}");
        tokio::time::sleep(20 * MS).await;
    };
    assert_eq!(from.release(hold).await.unwrap(), Released::Released);
    let next = handed(to, &waiting, &mut wake).await;
    assert!(token(&next) > token(hold));
    next
}

/// A client that knows another authority, shows no certificate, or speaks no TLS at all, is refused.
async fn refuses_strangers(url: &str) {
    let (bare, _) = url.split_once('?').unwrap();
    let (no_certificate, _) = url.split_once("&cert=").unwrap();
    for wrong in [
        url.replace("ca.pem", "stranger.pem"),
        no_certificate.to_owned(),
        bare.to_owned(),
        bare.replacen("rediss", "redis", 1),
    ] {
        let error = Redis::connect(&wrong, &Clock::system()).await.expect_err(&wrong);
        assert_eq!(*error.kind(), ErrorKind::Outage, "{wrong}: {error}");
    }
}
