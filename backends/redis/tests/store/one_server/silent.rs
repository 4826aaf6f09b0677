//! Connections on which nothing comes any more, or comes late, beside others that are well.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dlock::backends::redis::Redis;
use dlock::{Clock, Key, LockKey, Registry, Wait};
use dlock_contract::{Attempt, Backend, Hold, Queue, Released, Standing};
use dlock_testkit::holds::{claim, claim_on, take};
use dlock_testkit::{Mode, Proxy, lateness, wait_until};

use super::database::{Database, HOUR, SECOND};

/// Only a hang comes near it.
const HANG: Duration = Duration::from_secs(60);

async fn is_renewed(redis: &Redis, holds: &[&Hold]) {
    let standings = tokio::time::timeout(HANG, redis.renew(holds)).await.expect("no way to the server");
    assert!(standings.iter().all(|standing| matches!(standing, Ok(Standing::Renewed(_)))), "{standings:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_given_up_unanswered_is_followed_by_one_on_another_connection() {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let redis = Arc::new(Redis::connect(&url, &Clock::system()).await.unwrap());
    let hold = take(&*redis, &claim("k", HOUR)).await;
    is_renewed(&redis, &[&hold]).await;
    proxy.keep();
    let (store, other) = (redis.clone(), claim("other", HANG));
    let asking = tokio::spawn(async move { store.try_acquire(&other, Queue::Leave).await.map(drop) });
    wait_until("it was sent", async || proxy.kept().iter().any(|bytes| *bytes > 0)).await.unwrap();
    // A little longer than the store itself waits for an answer, before it tries another connection.
    assert!(tokio::time::timeout(2100 * SECOND / 1000, redis.renew(&[&hold])).await.is_err());
    is_renewed(&redis, &[&hold]).await;
    // Other requests that were sent over the old one are not lost with it.
    proxy.deliver(&proxy.kept());
    tokio::time::timeout(HANG, asking).await.expect("the old connection was cut off").unwrap().unwrap();
}

/// The request has as long as its longest lease leaves it, and the short one cannot wait for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_lease_is_renewed_over_another_connection_while_long_ones_still_wait() {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let redis = Arc::new(Redis::connect(&url, &Clock::system()).await.unwrap());
    let short = Arc::new(take(&*redis, &claim("short", 3 * SECOND)).await);
    let long = take(&*redis, &claim("long", HANG)).await;
    is_renewed(&redis, &[&short, &long]).await;
    proxy.keep();
    let (store, hold) = (redis.clone(), short.clone());
    let both = tokio::spawn(async move { store.renew(&[&hold, &long]).await });
    Clock::system().sleep_until(Clock::system().now().after(3 * SECOND / 2)).await;
    // Its lease may have ended meanwhile, on a machine that is busy; that it is answered is what counts.
    let answer = tokio::time::timeout(HANG, redis.renew(&[&short])).await.expect("no way to the server");
    assert!(answer[0].is_ok(), "{answer:?}");
    assert!(!both.is_finished());
    proxy.deliver(&proxy.kept());
    let standings = tokio::time::timeout(HANG, both).await.expect("the old connection was cut off").unwrap();
    assert!(matches!(standings[1], Ok(Standing::Renewed(_))), "{standings:?}");
}

/// `WAIT` blocks its connection in the server; here no replica will ever answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_renewal_waits_behind_a_wait_for_replicas() {
    let server = Database::own(&[]);
    let hold = take(&server.open().await, &claim("held", HANG)).await;
    let url = format!("{}?wait_replicas=1", server.url);
    let redis = Arc::new(Redis::connect(&url, &Clock::system()).await.unwrap());
    let asking: Vec<_> = (0..8_u64)
        .map(|number| {
            let key = LockKey::new("test", Key::text("k").value(&number)).unwrap();
            let (redis, claim) = (redis.clone(), claim_on(&key, HANG, |_| ()));
            tokio::spawn(async move { redis.try_acquire(&claim, Queue::Leave).await.map(drop) })
        })
        .collect();
    let waits = async || {
        let info: String = redis::cmd("INFO").arg("clients").query(&mut server.raw()).unwrap();
        info.contains("blocked_clients:1")
    };
    wait_until("somebody waits for replicas", waits).await.unwrap();
    // The others have been granted theirs behind it, and wait for replicas one after another.
    wait_until("they have their locks", async || server.keys().len() > asking.len()).await.unwrap();
    wait_until("others wait for replicas", waits).await.unwrap();
    is_renewed(&redis, &[&hold]).await;
    wait_until("they still do", waits).await.unwrap();
    for asking in asking {
        asking.await.unwrap().unwrap_err();
    }
}

/// With `wait_replicas` renewals have a second connection, if there can be one. The one that was opened with the store
/// has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_use_the_open_connection_while_a_server_refuses_further_connections() {
    for _ in 0..10 {
        if let Some([opened, refused, later]) = renewed_beside_refusals().await {
            assert_eq!(refused, 1, "a second connection was tried");
            assert_eq!(later, opened + 1);
            return;
        }
    }
    panic!("no renewal came after the end of the killed connection was seen");
}

/// How many connections were opened and refused until the end of the refusals, and how many were opened after the next
/// renewal. Nothing comes of it where a renewal is sent before this process sees that its connection was killed.
async fn renewed_beside_refusals() -> Option<[u64; 3]> {
    let server = Database::own(&[]);
    let hold = take(&server.open().await, &claim("held", HANG)).await;
    let redis = Redis::connect(&format!("{}?wait_replicas=1", server.url), &Clock::system()).await.unwrap();
    server.kill_latest();
    let mut raw = server.raw();
    let mut admit = |number: &str| {
        let _: () = redis::cmd("CONFIG").arg(&["SET", "maxclients", number]).query(&mut raw).unwrap();
        let info: String = redis::cmd("INFO").arg("stats").query(&mut raw).unwrap();
        ["total_connections_received:", "rejected_connections:"]
            .map(|name| info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse::<u64>().unwrap())
    };
    admit("1");
    redis.renew(&[&hold]).await.remove(0).ok()?;
    let [opened, refused] = admit("100");
    is_renewed(&redis, &[&hold]).await;
    let [later, _] = admit("100");
    Some([opened, refused, later])
}

/// Renews once over a connection that works, while a second one is let in and hears nothing. Nothing comes of it where
/// the first one was too late, on a machine that is busy, and has fallen silent too.
async fn renewed_beside_a_silent_one() -> Option<dlock::Result<Standing>> {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let redis = Redis::connect(&format!("{url}?wait_replicas=1"), &Clock::system()).await.unwrap();
    server.kill_latest();
    lateness::watch();
    let taken = std::time::Instant::now();
    let hold = take(&server.open().await, &claim("held", 4 * SECOND)).await;
    proxy.set(Mode::Blackhole { to_server: false, to_client: true });
    let renewing = tokio::spawn(async move { redis.renew(&[&hold]).await.remove(0) });
    wait_until("a new connection is silent", async || proxy.swallowing() > 0).await.unwrap();
    proxy.set(Mode::Pass);
    if proxy.swallowing() > 1 {
        return None;
    }
    let standing = tokio::time::timeout(HANG, renewing).await.expect("no way to the server").unwrap();
    // The lease is no longer than an opening, so it ends if this process is not run meanwhile.
    let is_too_late = matches!(standing, Ok(Standing::Lost)) && lateness::since(taken) > SECOND;
    Some(standing).filter(|_| !is_too_late)
}

/// The lease ends before an opening is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_use_the_open_connection_in_time_while_a_server_accepts_no_connections() {
    for _ in 0..10 {
        if let Some(standing) = renewed_beside_a_silent_one().await {
            assert!(matches!(standing, Ok(Standing::Renewed(_))), "{standing:?}");
            return;
        }
    }
    panic!("the first connection was too late each time");
}

/// The network repeats what was sent over a connection that is given up. A lock that arrives after its own undoing,
/// which went over the next connection, would be nobody's for its whole ttl.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_request_over_a_connection_that_was_given_up_wins_no_lock() {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let redis = Arc::new(Redis::connect(&url, &Clock::system()).await.unwrap());
    take(&*redis, &claim("before", HANG)).await;
    let mut raw = server.raw();
    let mut clients = move || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut raw).unwrap();
        list.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<HashSet<_>>()
    };
    let first = clients();
    proxy.keep();
    let (store, late) = (redis.clone(), claim("late", HANG));
    let mine = late.clone();
    let asking = tokio::spawn(async move { store.try_acquire(&mine, Queue::Leave).await.map(drop) });
    wait_until("it was sent", async || proxy.kept().iter().any(|bytes| *bytes > 0)).await.unwrap();
    asking.abort();
    // Another caller finds the connection silent, and opens the next one.
    let mut tries = 0_u64;
    let hold = loop {
        let key = LockKey::new("test", Key::text("other").value(&tries)).unwrap();
        let other = claim_on(&key, HANG, |_| ());
        match tokio::time::timeout(SECOND, redis.try_acquire(&other, Queue::Leave)).await {
            Ok(Ok(Attempt::Acquired(hold))) => break hold,
            tried => assert!(tries < 30, "no way to the server: {tried:?}"),
        }
        tries += 1;
    };
    redis.abandon(&late).await.unwrap();
    proxy.deliver(&proxy.kept());
    // For what has come over it, or for what we have asked.
    wait_until("the old connection ends in the server", async || !first.is_subset(&clients())).await.unwrap();
    let keys = server.keys();
    assert!(!keys.iter().any(|key| key.contains("late")), "nobody holds it: {keys:?}");
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
}

/// A caller that the restart guard tells to wait abandons its attempt first. If that request is on its way for longer
/// than the wait, it must not free a lock that was won since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandon_that_comes_late_frees_no_lock_that_was_won_since() {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let registry = Registry::new();
    registry.connect("redis", &format!("{url}?restart_guard=4s")).await.unwrap();
    registry.set_default("redis").unwrap();
    // The server is young: the first attempt asks nothing of it.
    proxy.keep();
    let lock = registry.lock(Key::text("k")).ttl(HANG).wait(Wait::UpTo(HANG));
    let guard = tokio::time::timeout(HANG, lock.acquire()).await.expect("no way to the server").unwrap();
    let kept = proxy.kept();
    assert!(kept.iter().any(|bytes| *bytes > 0), "no abandon is under way");
    let scripts = || {
        let info: String = redis::cmd("INFO").arg("commandstats").query(&mut server.raw()).unwrap();
        info.lines()
            .find(|line| line.starts_with("cmdstat_evalsha:"))
            .map(|line| line.split(',').next().unwrap().to_owned())
    };
    let before = scripts();
    proxy.deliver(&kept);
    wait_until("it has arrived", async || scripts() != before).await.unwrap();
    let keys = server.keys();
    assert!(keys.iter().any(|key| key.ends_with(":k}")), "the late abandon has freed the lock: {keys:?}");
    guard.release().await.unwrap();
    registry.shutdown(SECOND).await;
}
