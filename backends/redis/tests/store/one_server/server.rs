//! Servers that are wrong, gone, or back again.

use std::time::{Duration, Instant};

use dlock::backends::redis::Redis;
use dlock::{Clock, ErrorKind};
use dlock_contract::{Attempt, Backend, Queue, Released};
use dlock_testkit::holds::{claim, stand, take, until};
use dlock_testkit::{text_of, wait_until};
use redis::Commands;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::database::{Database, HOUR, SECOND, granted, unrenewed};
use crate::names::{self, FENCE, K};
use crate::rights;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_value_is_a_conflict_and_stays() {
    let server = Database::shared();
    let redis = server.open().await;
    let mut raw = server.raw();
    let foreign = |value: &str| {
        let _: () = server.raw().set(K, value).unwrap();
    };
    let kinds = async || {
        let mut kinds = Vec::new();
        for queue in [Queue::Leave, until()] {
            kinds.push(redis.try_acquire(&claim("k", HOUR), queue).await.unwrap_err().kind().clone());
        }
        kinds
    };
    foreign("somebody else's");
    assert_eq!(kinds().await, [ErrorKind::KeyConflict, ErrorKind::KeyConflict]);
    assert_eq!(*redis.look(&claim("k", HOUR).key).await.unwrap_err().kind(), ErrorKind::KeyConflict);
    let kept: String = raw.get(K).unwrap();
    assert_eq!(kept, "somebody else's");
    let _: () = raw.del(K).unwrap();
    let _: () = raw.lpush(K, 1).unwrap();
    assert_eq!(kinds().await, [ErrorKind::KeyConflict, ErrorKind::KeyConflict]);
    redis.abandon(&claim("k", HOUR)).await.unwrap();
    let _: () = raw.del(K).unwrap();
    // Ours by its form, but without an end.
    foreign(&format!("{} h=x", "ab".repeat(16)));
    let error = redis.try_acquire(&claim("k", HOUR), until()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::CorruptState);
    assert!(!error.is_retryable());
    assert_eq!(server.keys(), [FENCE, K]);
}

#[tokio::test]
async fn unsafe_servers_are_refused() {
    let server = Database::own(&["--maxmemory-policy", "allkeys-lru"]);
    let error = Redis::connect(&server.url, &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "maxmemory-policy"), "{error}");
    Redis::connect(&format!("{}?eviction=allow", server.url), &Clock::system()).await.unwrap();

    let primary = Database::own(&[]);
    let replica = Database::own(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
    let error = Redis::connect(&replica.url, &Clock::system()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotPrimary);

    // One that becomes a replica while it is used.
    let redis = primary.open().await;
    let _: () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(server.port()).query(&mut primary.raw()).unwrap();
    for _ in 0..2 {
        let error = redis.try_acquire(&claim("k", HOUR), Queue::Leave).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotPrimary, "{error}");
    }
}

#[tokio::test]
async fn an_error_about_a_wrong_password_does_not_show_it() {
    const CANARY: &str = "c4n4ry";
    let server = Database::own(&["--requirepass", "right@:/%#?"]);
    let port = server.port();
    for url in [
        format!("redis://:{CANARY}%40@127.0.0.1:{port}/"),
        format!("redis://{CANARY}:{CANARY}@127.0.0.1:{port}/"),
        format!("redis://127.0.0.1:{port}/"),
    ] {
        let error = Redis::connect(&url, &Clock::system()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(!error.is_retryable());
        let shown = text_of(&error);
        assert!(!shown.contains(CANARY), "{shown}");
    }
    let url = format!("redis://:right%40%3A%2F%25%23%3F@127.0.0.1:{port}/0");
    let redis = Redis::connect(&url, &Clock::system()).await.unwrap();
    assert!(!format!("{redis:?}").contains("right"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_with_only_the_needed_rights_can_lock_and_wait() {
    let server = Database::own(&[]);
    let mut raw = server.raw();
    let _: () = redis::cmd("ACL")
        .arg("SETUSER")
        .arg(&["dlock", "reset", "on", ">pw"])
        .arg(rights::lines(1..=3).split_whitespace().collect::<Vec<_>>())
        .query(&mut raw)
        .unwrap();
    let redis =
        Redis::connect(&format!("redis://dlock:pw@127.0.0.1:{}/", server.port()), &Clock::system()).await.unwrap();
    let hold = take(&redis, &claim("k", HOUR)).await;
    let mut wake = stand(&redis, &unrenewed("k")).await;
    redis.release(&hold).await.unwrap();
    let hold = granted(&mut wake, 60 * SECOND).await.unwrap();
    // Without the right to subscribe, waiting is polling.
    let _: () = redis::cmd("ACL").arg("SETUSER").arg("dlock").arg("-subscribe").query(&mut raw).unwrap();
    let other =
        Redis::connect(&format!("redis://dlock:pw@127.0.0.1:{}/", server.port()), &Clock::system()).await.unwrap();
    let wake = stand(&other, &claim("k", HOUR)).await;
    assert!(wake.signal.is_none() && wake.ask_by.is_some());
    let _ = hold;
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_outage_and_one_that_is_back_is_used() {
    let server = Database::own(&[]);
    // The guard has tests of its own.
    let url = format!("{}?restart_guard=off&failover_guard=off", server.url);
    let redis = Redis::connect(&url, &Clock::system()).await.unwrap();
    let hold = take(&redis, &claim("k", HOUR)).await;
    server.server.kill9().unwrap();
    let error = redis.try_acquire(&claim("k2", HOUR), Queue::Leave).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Outage);
    assert!(error.is_retryable());
    let standings = redis.renew(&[&hold, &hold]).await;
    assert!(standings.len() == 2 && standings.iter().all(|standing| standing.as_ref().unwrap_err().is_retryable()));
    // Asked while it starts.
    let again = tokio::task::spawn_blocking(move || server.server.restart().map(|()| server));
    let end = Instant::now() + 60 * SECOND;
    let next = loop {
        match redis.try_acquire(&claim("k", HOUR), Queue::Leave).await {
            Ok(Attempt::Acquired(next)) => break next,
            Ok(Attempt::Contended(_)) => panic!("a restart without a file forgets"),
            Ok(Attempt::AlreadyRun) => panic!("a claim without a period"),
            Err(error) => assert!(error.is_retryable() && Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let _server = again.await.unwrap().unwrap();
    assert!(next.token > hold.token);
    assert_eq!(redis.release(&hold).await.unwrap(), Released::NotOwner);
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_costs_no_failed_request() {
    let server = Database::own(&[]);
    let redis = server.open().await;
    let hold = take(&redis, &claim("k", HOUR)).await;
    // The server ends its connections in the order of their age, so it ends this one after dlock's.
    let mut younger = TcpStream::connect(server.server.addr()).await.unwrap();
    younger.write_all(b"PING\r\n").await.unwrap();
    assert_eq!(younger.read(&mut [0; 64]).await.unwrap(), b"+PONG\r\n".len());
    let _: i64 = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query(&mut server.raw()).unwrap();
    assert_eq!(younger.read(&mut [0; 64]).await.unwrap(), 0);
    // The client's task runs after this one.
    tokio::task::yield_now().await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_replaced() {
    let server = Database::own(&[]);
    let redis = server.open().await;
    let opened = || {
        let info: String = redis::cmd("INFO").arg("stats").query(&mut server.raw()).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap().to_owned();
        line.parse::<u64>().unwrap()
    };
    let before = opened();
    server.server.pause().unwrap();
    // Longer than the test: what the abandon leaves must not go by itself.
    let waiting = claim("k", HOUR);
    let attempt = redis.try_acquire(&waiting, Queue::Leave);
    assert!(tokio::time::timeout(Duration::from_millis(2100), attempt).await.is_err());
    let other = claim("other", HOUR);
    let wake_up = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.server.resume().unwrap();
    };
    let (attempt, ()) = tokio::join!(redis.try_acquire(&other, Queue::Leave), wake_up);
    assert!(matches!(attempt.unwrap(), Attempt::Acquired(_)));
    // The one that took its place, and the one that asks this.
    assert_eq!(opened() - before, 2);
    // The server has carried out what it had been sent; the abandon takes it back.
    redis.abandon(&waiting).await.unwrap();
    assert_eq!(server.keys(), [FENCE, &names::of_text("other")]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_works() {
    let server = Database::own(&["--unixsocket", "redis.sock"]);
    let url = format!("unix://{}?db=1", server.server.folder().join("redis.sock").display());
    let redis = Redis::connect(&url, &Clock::system()).await.unwrap();
    take(&redis, &claim("k", HOUR)).await;
    assert_eq!(server.keys(), Vec::<String>::new());
    let path = server.server.folder().join("redis.sock");
    assert_eq!(redis.host(), Some(format!("{}/1", path.display())));
}

#[tokio::test]
async fn a_store_that_fails_or_is_dropped_leaves_no_task() {
    let server = Database::shared();
    let alive = || Handle::current().metrics().num_alive_tasks();
    let before = alive();
    for _ in 0..3 {
        Redis::connect("redis://127.0.0.1:1/", &Clock::system()).await.unwrap_err();
        let redis = server.open().await;
        let held = take(&redis, &claim("k", HOUR)).await;
        let waiting = claim("k", HOUR);
        drop(stand(&redis, &waiting).await);
        redis.abandon(&waiting).await.unwrap();
        redis.release(&held).await.unwrap();
    }
    wait_until("no task is left", async || alive() == before).await.unwrap();
}
