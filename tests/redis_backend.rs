//! The Redis backend against a real server.

mod holds;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use dlock::backends::redis::Redis;
use dlock::{Attempt, Backend, Claim, Clock, ErrorKind, Hold, Key, LockKey, Released, Signal, Stand, Standing, Wake};
use dlock_testkit::servers::{self, Instance, shared};
use dlock_testkit::text_of;
use holds::take;
use redis::Commands;

const SECOND: Duration = Duration::from_secs(1);

/// An empty database, and the server under it if it is the test's own.
struct Database<S = ()> {
    url: String,
    server: S,
}

impl Database {
    /// One of the server that all tests share, for those that disturb nobody.
    fn shared() -> Self {
        static LAST: AtomicU8 = AtomicU8::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(number < 16, "a server has 16 databases; the other tests need servers of their own");
        let url = format!("{}{number}", shared().redis().unwrap());
        let database = Self { url, server: () };
        // A server from outside may have met this test before.
        let _: () = redis::cmd("FLUSHDB").query(&mut database.raw()).unwrap();
        database
    }
}

impl Database<Instance> {
    /// One of a server that the test may disturb.
    fn own(options: &[&str]) -> Self {
        let extra = options.iter().map(ToString::to_string).collect();
        let server = Instance::start(servers::Redis { extra, ..servers::Redis::default() }).unwrap();
        Self { url: server.url(), server }
    }

    fn port(&self) -> u16 {
        self.server.port()
    }
}

impl<S> Database<S> {
    /// A connection of the test itself.
    fn raw(&self) -> redis::Connection {
        redis::Client::open(&*self.url).unwrap().get_connection().unwrap()
    }

    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut self.raw()).unwrap();
        keys.sort();
        keys
    }

    async fn open(&self) -> Redis {
        Redis::connect(&self.url, &Clock::system()).await.unwrap()
    }
}

fn claim(key: &'static str, ttl: Duration) -> Arc<Claim> {
    Arc::new(Claim::new(LockKey::new("test", Key::text(key)).unwrap(), ttl, "tests::redis").unwrap())
}

fn until() -> Stand {
    Stand::Until(Clock::system().now().after(60 * SECOND))
}

async fn stand(redis: &Redis, claim: &Arc<Claim>) -> Wake {
    match redis.try_acquire(claim, until()).await.unwrap() {
        Attempt::Contended(wake) => wake,
        Attempt::AlreadyRun => panic!("a claim without a period"),
        Attempt::Acquired(_) => panic!("acquired"),
    }
}

/// The hold that a wake brings, within so long.
async fn granted(wake: &mut Wake, limit: Duration) -> Option<Hold> {
    match tokio::time::timeout(limit, wake.signal.as_mut().unwrap()).await {
        Ok(Ok(Signal::Granted(hold))) => Some(hold),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    }
}

fn is_contended(attempt: dlock::Result<Attempt>) -> bool {
    matches!(attempt.unwrap(), Attempt::Contended(_))
}

#[tokio::test]
async fn a_cycle_leaves_nothing_but_the_counter() {
    let server = Database::shared();
    let redis = server.open().await;
    let first = take(&redis, &claim("k", SECOND)).await;
    assert_eq!(server.keys(), ["dl1:fence", "dl1:{test:k}"]);
    let note = redis.holder(&first.claim.key).await.unwrap().unwrap();
    assert_eq!((note.site(), note.pid()), (Some("tests::redis"), Some(std::process::id())));
    assert_eq!(redis.release(&first).await.unwrap(), Released::Released);
    assert_eq!(server.keys(), ["dl1:fence"]);
    assert!(redis.holder(&first.claim.key).await.unwrap().is_none());
    assert_eq!(redis.release(&first).await.unwrap(), Released::NotOwner);
    let second = take(&redis, &claim("k", SECOND)).await;
    assert!(second.token > first.token);
    assert_eq!(format!("{redis:?}"), format!("Redis({})", server.url.trim_start_matches("redis://")));
}

#[tokio::test]
async fn an_uncontended_cycle_is_two_commands_and_a_counter() {
    let server = Database::own(&[]);
    let redis = server.open().await;
    let calls = || {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut server.raw()).unwrap();
        let calls = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            line.map_or(0, |line| line.split(',').next().unwrap().parse::<u64>().unwrap())
        };
        [calls("set"), calls("incrby"), calls("evalsha"), calls("del"), calls("eval"), calls("pexpire")]
    };
    let before = calls();
    for _ in 0..10 {
        let hold = take(&redis, &claim("k", SECOND)).await;
        redis.release(&hold).await.unwrap();
    }
    let spent: Vec<_> = calls().iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(spent, [10, 10, 10, 10, 0, 0]);
}

#[tokio::test]
async fn a_second_owner_is_refused_and_leaves_nothing() {
    let server = Database::shared();
    let (one, two) = (server.open().await, server.open().await);
    let hold = take(&one, &claim("k", 10 * SECOND)).await;
    let before = server.keys();
    assert!(is_contended(two.try_acquire(&claim("k", SECOND), Stand::No).await));
    assert_eq!(server.keys(), before);
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    take(&two, &claim("k", SECOND)).await;
}

#[tokio::test]
async fn the_same_owner_may_ask_again_and_the_lease_begins_anew() {
    let server = Database::shared();
    let redis = server.open().await;
    for stand in [Stand::No, until()] {
        let claim = claim("k", 10 * SECOND);
        let first = take(&redis, &claim).await;
        let _: () = server.raw().pexpire("dl1:{test:k}", 500).unwrap();
        let before = Clock::system().now();
        let Attempt::Acquired(second) = redis.try_acquire(&claim, stand).await.unwrap() else { panic!() };
        assert!(second.token > first.token && second.validity.from >= before);
        let left: i64 = server.raw().pttl("dl1:{test:k}").unwrap();
        assert!(left > 9000, "{left}");
        assert_eq!(redis.release(&second).await.unwrap(), Released::Released);
        assert_eq!(server.keys(), ["dl1:fence"]);
    }
}

#[tokio::test]
async fn a_late_release_and_a_late_renewal_touch_nobody_elses_lock() {
    let server = Database::shared();
    let redis = server.open().await;
    let late = take(&redis, &claim("k", Duration::from_millis(30))).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    // A renewal never creates.
    assert_eq!(renew(&redis, &[&late]).await, [Standing::Lost]);
    assert_eq!(server.keys(), ["dl1:fence"]);
    let present = take(&redis, &claim("k", SECOND)).await;
    assert_eq!(redis.release(&late).await.unwrap(), Released::NotOwner);
    assert_eq!(renew(&redis, &[&late]).await, [Standing::Lost]);
    assert_eq!(redis.release(&present).await.unwrap(), Released::Released);
}

async fn renew(redis: &Redis, holds: &[&Hold]) -> Vec<Standing> {
    redis
        .renew(holds)
        .await
        .into_iter()
        .map(|standing| match standing.unwrap() {
            // The instant is another one each time.
            Standing::Renewed(validity) => {
                Standing::Renewed(dlock::Validity { from: Clock::manual().now(), ..validity })
            }
            Standing::Lost => Standing::Lost,
        })
        .collect()
}

#[tokio::test]
async fn a_batch_is_renewed_in_order_also_after_the_scripts_are_gone() {
    let server = Database::own(&[]);
    let redis = server.open().await;
    let mut holds = Vec::new();
    for n in 0..250_u64 {
        let key = LockKey::new("test", Key::text("k").value(&n)).unwrap();
        holds.push(take(&redis, &Arc::new(Claim::new(key, 5 * SECOND, "t").unwrap())).await);
    }
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.raw()).unwrap();
    let _: () = server.raw().del("dl1:{test:k<120>}").unwrap();
    let _: () = server.raw().pexpire("dl1:{test:k<121>}", 100).unwrap();
    let standings = renew(&redis, &holds.iter().collect::<Vec<_>>()).await;
    let renewed = Standing::Renewed(dlock::Validity { from: Clock::manual().now(), granted: 5 * SECOND });
    for (n, standing) in standings.iter().enumerate() {
        assert_eq!(*standing, if n == 120 { Standing::Lost } else { renewed }, "{n}");
    }
    assert_eq!(standings.len(), 250);
    let left: i64 = server.raw().pttl("dl1:{test:k<121>}").unwrap();
    assert!(left > 4000, "{left}");
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.raw()).unwrap();
    assert_eq!(redis.release(&holds[0]).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn an_expired_lock_goes_to_the_next_but_not_earlier() {
    let server = Database::shared();
    let redis = server.open().await;
    take(&redis, &claim("k", Duration::from_millis(200))).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let waiter = claim("k", SECOND);
    let wake = stand(&redis, &waiter).await;
    let ask_by = wake.ask_by.unwrap();
    // A busy machine may have taken its time between our clock and the server's.
    Clock::system().sleep_until(ask_by.after(Duration::from_millis(100))).await;
    assert!(matches!(redis.try_acquire(&waiter, until()).await.unwrap(), Attempt::Acquired(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_stand_are_served_in_order_over_two_processes() {
    let server = Database::shared();
    let (one, two) = (server.open().await, server.open().await);
    let mut present = take(&one, &claim("k", 10 * SECOND)).await;
    let mut waiting = std::collections::VecDeque::new();
    for n in 0..6 {
        let redis = if n % 2 == 0 { &one } else { &two };
        let claim = claim("k", 10 * SECOND);
        waiting.push_back((redis, stand(redis, &claim).await, claim));
    }
    let mut holder = &one;
    while let Some((redis, mut wake, claim)) = waiting.pop_front() {
        // Nobody overtakes, not even by asking.
        assert!(is_contended(one.try_acquire(&self::claim("k", SECOND), Stand::No).await));
        assert_eq!(holder.release(&present).await.unwrap(), Released::Released);
        let hold = granted(&mut wake, SECOND).await.unwrap();
        assert_eq!(hold.claim.owner, claim.owner);
        assert!(hold.token > present.token);
        assert_eq!(hold.validity.granted, SECOND);
        let left: i64 = server.raw().pttl("dl1:{test:k}").unwrap();
        assert!(left <= 1000, "{left}");
        // The first renewal makes it a full ttl.
        assert!(matches!(renew(redis, &[&hold]).await[..], [Standing::Renewed(v)] if v.granted == 10 * SECOND));
        let left: i64 = server.raw().pttl("dl1:{test:k}").unwrap();
        assert!(left > 9000, "{left}");
        (present, holder) = (hold, redis);
    }
    assert_eq!(holder.release(&present).await.unwrap(), Released::Released);
    assert_eq!(server.keys(), ["dl1:fence"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_nobody_renews_is_pushed_for_its_full_ttl() {
    let server = Database::shared();
    let redis = server.open().await;
    let present = take(&redis, &claim("k", 10 * SECOND)).await;
    let mut unrenewed = Claim::new(present.claim.key.clone(), 7 * SECOND, "t").unwrap();
    unrenewed.renewed = false;
    let mut wake = stand(&redis, &Arc::new(unrenewed)).await;
    redis.release(&present).await.unwrap();
    assert_eq!(granted(&mut wake, SECOND).await.unwrap().validity.granted, 7 * SECOND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_hears_of_a_lost_push_connection_and_asks() {
    let server = Database::own(&[]);
    let (one, two) = (server.open().await, server.open().await);
    let mut asked = None;
    for _ in 0..10 {
        let present = take(&one, &claim("k", 10 * SECOND)).await;
        let waiter = claim("k", 10 * SECOND);
        let mut wake = stand(&two, &waiter).await;
        // Kill the subscriber, and release before it can be back: the push finds nobody.
        let mut raw = server.raw();
        let killed: i64 = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").query(&mut raw).unwrap();
        assert_eq!(killed, 1);
        assert_eq!(one.release(&present).await.unwrap(), Released::Released);
        match tokio::time::timeout(SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap() {
            Signal::Ask => {
                assert!(matches!(redis_retry(&two, &waiter).await, Attempt::Acquired(_)));
                asked = Some(waiter);
                break;
            }
            // On a busy machine it was back in time: another try.
            Signal::Granted(hold) => assert_eq!(two.release(&hold).await.unwrap(), Released::Released),
        }
    }
    let waiter = asked.expect("each time the subscriber was back before the release");
    // And pushes arrive again.
    let third = claim("k", SECOND);
    let mut wake = stand(&one, &third).await;
    two.abandon(&waiter).await.unwrap();
    assert!(granted(&mut wake, SECOND).await.is_some());
}

async fn redis_retry(redis: &Redis, claim: &Arc<Claim>) -> Attempt {
    redis.try_acquire(claim, until()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_waiter_is_skipped_at_once() {
    let server = Database::own(&[]);
    let (one, two) = (server.open().await, server.open().await);
    let present = take(&one, &claim("k", 10 * SECOND)).await;
    let _dead = stand(&two, &claim("k", 10 * SECOND)).await;
    let mut next = stand(&one, &claim("k", 10 * SECOND)).await;
    // The store is gone with its connections, as if the process had been killed: nothing was abandoned.
    drop(two);
    let end = Instant::now() + 5 * SECOND;
    loop {
        let clients: String =
            redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut server.raw()).unwrap();
        if clients.lines().count() == 1 {
            break;
        }
        assert!(Instant::now() < end, "{clients}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    one.release(&present).await.unwrap();
    let hold = granted(&mut next, Duration::from_millis(500)).await.unwrap();
    one.release(&hold).await.unwrap();
    assert_eq!(server.keys(), ["dl1:fence"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_process_costs_one_short_grant_for_all_its_places() {
    let server = Database::shared();
    let (one, two) = (server.open().await, server.open().await);
    let present = take(&one, &claim("k", 10 * SECOND)).await;
    // Alive and subscribed, but nobody there ever looks at the news.
    let _silent = (stand(&two, &claim("k", 10 * SECOND)).await, stand(&two, &claim("k", 10 * SECOND)).await);
    let waiter = claim("k", 10 * SECOND);
    let mut wake = stand(&one, &waiter).await;
    let before = Instant::now();
    one.release(&present).await.unwrap();
    loop {
        Clock::system().sleep_until(wake.ask_by.unwrap()).await;
        match one.try_acquire(&waiter, until()).await.unwrap() {
            Attempt::Acquired(_) => break,
            Attempt::Contended(next) => wake = next,
            Attempt::AlreadyRun => panic!("a claim without a period"),
        }
    }
    assert!(before.elapsed() > Duration::from_millis(900), "{:?}", before.elapsed());
    assert!(before.elapsed() < Duration::from_millis(1900), "{:?}", before.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_claim_leaves_no_trace_twice() {
    let server = Database::shared();
    let redis = server.open().await;
    let present = take(&redis, &claim("k", 10 * SECOND)).await;
    let waiter = claim("k", SECOND);
    let wake = stand(&redis, &waiter).await;
    assert_eq!(server.keys(), ["dl1:fence", "dl1:{test:k}", "dl1:{test:k}:a", "dl1:{test:k}:q"]);
    drop(wake);
    for _ in 0..2 {
        redis.abandon(&waiter).await.unwrap();
        assert_eq!(server.keys(), ["dl1:fence", "dl1:{test:k}"]);
    }
    redis.release(&present).await.unwrap();
    assert_eq!(server.keys(), ["dl1:fence"]);
    // A grant is given back too, whoever asks.
    let granted = claim("k", SECOND);
    take(&redis, &granted).await;
    redis.abandon(&granted).await.unwrap();
    redis.abandon(&granted).await.unwrap();
    assert_eq!(server.keys(), ["dl1:fence"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_nobody_awaits_is_given_back_at_once() {
    let server = Database::shared();
    let (one, two) = (server.open().await, server.open().await);
    let present = take(&one, &claim("k", 10 * SECOND)).await;
    let waiter = claim("k", 10 * SECOND);
    let wake = stand(&two, &waiter).await;
    // As if its request had come after its abandon: the place is put back behind our back.
    let mut raw = server.raw();
    let line: Vec<(String, f64)> =
        redis::cmd("ZRANGE").arg("dl1:{test:k}:q").arg(0).arg(-1).arg("WITHSCORES").query(&mut raw).unwrap();
    let processes: Vec<String> = redis::cmd("HGETALL").arg("dl1:{test:k}:a").query(&mut raw).unwrap();
    two.abandon(&waiter).await.unwrap();
    drop(wake);
    let _: () = redis::cmd("ZADD").arg("dl1:{test:k}:q").arg(line[0].1).arg(&line[0].0).query(&mut raw).unwrap();
    let _: () = redis::cmd("HSET").arg("dl1:{test:k}:a").arg(&processes).query(&mut raw).unwrap();
    let mut next = stand(&one, &claim("k", 10 * SECOND)).await;
    one.release(&present).await.unwrap();
    let hold = granted(&mut next, Duration::from_millis(500)).await.unwrap();
    one.release(&hold).await.unwrap();
    assert_eq!(server.keys(), ["dl1:fence"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_comes_after_the_answer_takes_nothing_away() {
    let server = Database::shared();
    let redis = server.open().await;
    let present = take(&redis, &claim("k", 10 * SECOND)).await;
    let waiter = claim("k", 10 * SECOND);
    let wake = stand(&redis, &waiter).await;
    let line: Vec<String> = redis::cmd("ZRANGE").arg("dl1:{test:k}:q").arg(0).arg(-1).query(&mut server.raw()).unwrap();
    let (process, value) = (&line[0][..16], line[0].splitn(3, ' ').nth(2).unwrap().to_owned());
    redis.release(&present).await.unwrap();
    // It asks although it was pushed to; the wake is dropped only then.
    let Attempt::Acquired(hold) = redis.try_acquire(&waiter, until()).await.unwrap() else { panic!() };
    drop(wake);
    let news = format!("{} 1 1000 dl1:{{test:k}} {value}", hold.token.unwrap());
    let heard: i64 = server.raw().publish(format!("dl1:p:{process}"), news).unwrap();
    assert_eq!(heard, 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_rises_after_everything_was_flushed() {
    let server = Database::own(&[]);
    let redis = server.open().await;
    let mut last = take(&redis, &claim("k", SECOND)).await;
    for round in 0..3 {
        let _: () = redis::cmd("FLUSHALL").query(&mut server.raw()).unwrap();
        if round == 1 {
            // Somebody counts on without a seed.
            let _: () = server.raw().set("dl1:fence", 5).unwrap();
        }
        let waiter = claim("k", SECOND);
        let Attempt::Acquired(next) = redis.try_acquire(&waiter, until()).await.unwrap() else { panic!() };
        assert!(next.token > last.token, "{round}");
        assert_eq!(redis.release(&next).await.unwrap(), Released::Released);
        last = next;
    }
    // Set back, but not so far that it shows: what this process has seen is the bound.
    let behind = last.token.unwrap().get() - 10_000_000;
    let _: () = server.raw().set("dl1:fence", behind).unwrap();
    let next = take(&redis, &claim("k", SECOND)).await;
    assert!(next.token > last.token);
    redis.release(&next).await.unwrap();
    // A store that has seen nothing yet.
    let fresh = server.open().await;
    let _: () = redis::cmd("FLUSHALL").query(&mut server.raw()).unwrap();
    let next = take(&fresh, &claim("k", SECOND)).await;
    assert!(next.token > last.token);
    fresh.release(&next).await.unwrap();
    // Not only beyond the clock, but beyond all that was seen, also for a connection that is opened later.
    let ahead = last.token.unwrap().get() + 3_600_000_000;
    let _: () = server.raw().set("dl1:fence", ahead).unwrap();
    let far = take(&redis, &claim("k", SECOND)).await;
    assert_eq!(far.token.unwrap().get(), ahead + 1);
    redis.release(&far).await.unwrap();
    let _: () = redis::cmd("FLUSHALL").query(&mut server.raw()).unwrap();
    let next = take(&redis, &claim("k", SECOND)).await;
    assert!(next.token > far.token);
}

#[tokio::test]
async fn a_spent_or_broken_counter_is_told_and_no_lock_is_kept() {
    let server = Database::shared();
    let redis = server.open().await;
    for (counter, kind) in [
        (i64::MAX.to_string(), ErrorKind::FenceExhausted),
        ((1_u64 << 53).to_string(), ErrorKind::FenceExhausted),
        ("junk".into(), ErrorKind::CorruptState),
    ] {
        let _: () = server.raw().set("dl1:fence", &counter).unwrap();
        let error = redis.try_acquire(&claim("k", SECOND), Stand::No).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{counter}");
        assert_eq!(server.keys(), ["dl1:fence"]);
    }
}

#[tokio::test]
async fn very_many_keys_leave_none() {
    let server = Database::own(&[]);
    let redis = server.open().await;
    let cycles = (0..64_u64).map(|lane| {
        let redis = &redis;
        async move {
            let mut last = None;
            for n in 0..1600 {
                let key = LockKey::new("test", Key::text("k").value(&(lane * 1600 + n))).unwrap();
                let hold = take(redis, &Arc::new(Claim::new(key, 30 * SECOND, "t").unwrap())).await;
                assert!(hold.token > last);
                last = hold.token;
                redis.release(&hold).await.unwrap();
            }
        }
    });
    futures::future::join_all(cycles).await;
    assert_eq!(server.keys(), ["dl1:fence"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_ours_is_a_conflict_and_stays() {
    let server = Database::shared();
    let redis = server.open().await;
    let mut raw = server.raw();
    let foreign = |value: &str| {
        let _: () = server.raw().set("dl1:{test:k}", value).unwrap();
    };
    let kinds = async || {
        let mut kinds = Vec::new();
        for stand in [Stand::No, until()] {
            kinds.push(redis.try_acquire(&claim("k", SECOND), stand).await.unwrap_err().kind().clone());
        }
        kinds
    };
    foreign("somebody else's");
    assert_eq!(kinds().await, [ErrorKind::KeyConflict, ErrorKind::KeyConflict]);
    assert_eq!(*redis.holder(&claim("k", SECOND).key).await.unwrap_err().kind(), ErrorKind::KeyConflict);
    let kept: String = raw.get("dl1:{test:k}").unwrap();
    assert_eq!(kept, "somebody else's");
    let _: () = raw.del("dl1:{test:k}").unwrap();
    let _: () = raw.lpush("dl1:{test:k}", 1).unwrap();
    assert_eq!(kinds().await, [ErrorKind::KeyConflict, ErrorKind::KeyConflict]);
    redis.abandon(&claim("k", SECOND)).await.unwrap();
    let _: () = raw.del("dl1:{test:k}").unwrap();
    // Ours by its form, but without an end.
    foreign(&format!("{} h=x", "ab".repeat(16)));
    let error = redis.try_acquire(&claim("k", SECOND), until()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::CorruptState);
    assert!(!error.is_retryable());
    assert_eq!(server.keys(), ["dl1:fence", "dl1:{test:k}"]);
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
        let error = redis.try_acquire(&claim("k", SECOND), Stand::No).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotPrimary, "{error}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_told_without_it() {
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
async fn an_account_with_only_what_locks_need_can_lock_and_wait() {
    let server = Database::own(&[]);
    let mut raw = server.raw();
    let _: () = redis::cmd("ACL")
        .arg("SETUSER")
        .arg(&["dlock", "on", ">pw", "resetkeys", "~dl1:*", "resetchannels", "&dl1:p:*", "-@all"])
        .arg("+set +get +incrby +del +pexpire +pttl +exists +zadd +zpopmin +zrem +hset +hget +hdel +publish +subscribe +time +role +eval +evalsha".split(' ').collect::<Vec<_>>())
        .query(&mut raw)
        .unwrap();
    let redis =
        Redis::connect(&format!("redis://dlock:pw@127.0.0.1:{}/", server.port()), &Clock::system()).await.unwrap();
    let hold = take(&redis, &claim("k", SECOND)).await;
    let mut wake = stand(&redis, &claim("k", SECOND)).await;
    redis.release(&hold).await.unwrap();
    let hold = granted(&mut wake, SECOND).await.unwrap();
    // Without the right to subscribe, waiting is polling.
    let _: () = redis::cmd("ACL").arg("SETUSER").arg("dlock").arg("-subscribe").query(&mut raw).unwrap();
    let other =
        Redis::connect(&format!("redis://dlock:pw@127.0.0.1:{}/", server.port()), &Clock::system()).await.unwrap();
    let wake = stand(&other, &claim("k", SECOND)).await;
    assert!(wake.signal.is_none() && wake.ask_by.is_some());
    let _ = hold;
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_outage_and_one_that_is_back_is_used() {
    let server = Database::own(&[]);
    // What the guard does is the matter of other tests.
    let url = format!("{}?restart_guard=off", server.url);
    let redis = Redis::connect(&url, &Clock::system()).await.unwrap();
    let hold = take(&redis, &claim("k", 10 * SECOND)).await;
    server.server.kill9().unwrap();
    let error = redis.try_acquire(&claim("k2", SECOND), Stand::No).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Outage);
    assert!(error.is_retryable());
    let standings = redis.renew(&[&hold, &hold]).await;
    assert!(standings.len() == 2 && standings.iter().all(|standing| standing.as_ref().unwrap_err().is_retryable()));
    // Asked while it starts.
    let again = tokio::task::spawn_blocking(move || server.server.restart().map(|()| server));
    let end = Instant::now() + 5 * SECOND;
    let next = loop {
        match redis.try_acquire(&claim("k", SECOND), Stand::No).await {
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
    let hold = take(&redis, &claim("k", 10 * SECOND)).await;
    let _: i64 = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query(&mut server.raw()).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
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
    let waiting = claim("k", SECOND);
    let attempt = redis.try_acquire(&waiting, Stand::No);
    assert!(tokio::time::timeout(Duration::from_millis(2100), attempt).await.is_err());
    let other = claim("other", SECOND);
    let wake_up = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.server.resume().unwrap();
    };
    let (attempt, ()) = tokio::join!(redis.try_acquire(&other, Stand::No), wake_up);
    assert!(matches!(attempt.unwrap(), Attempt::Acquired(_)));
    // The one that took its place, and the one that asks this.
    assert_eq!(opened() - before, 2);
    // The server has carried out what it had been sent; the abandon takes it back.
    redis.abandon(&waiting).await.unwrap();
    assert_eq!(server.keys(), ["dl1:fence", "dl1:{test:other}"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_works() {
    let server = Database::own(&["--unixsocket", "redis.sock"]);
    let url = format!("unix://{}?db=1", server.server.folder().join("redis.sock").display());
    let redis = Redis::connect(&url, &Clock::system()).await.unwrap();
    take(&redis, &claim("k", SECOND)).await;
    assert_eq!(server.keys(), Vec::<String>::new());
    assert_eq!(format!("{redis:?}"), "Redis(unix socket/1)");
}

fn fence(key: &'static str, token: u64) -> dlock::Fence {
    dlock::Fence::from_parts(LockKey::new("test", Key::text(key)).unwrap(), Some(token)).unwrap()
}

#[tokio::test]
async fn a_fenced_write_is_refused_after_a_later_one() {
    use dlock::fenced::redis::{NOTHING, Script, delete, set};
    let server = Database::shared();
    let client = redis::Client::open(&*server.url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let value = || redis::cmd("GET").arg("r").query::<Option<String>>(&mut server.raw()).unwrap();
    // Digits, not numbers: these two are one as doubles, and 9 is less than 10.
    let (older, newer) = (u64::MAX - 1, u64::MAX);
    set(&mut connection, &fence("k", 9), "r", "nine").await.unwrap();
    set(&mut connection, &fence("k", 10), "r", "ten").await.unwrap();
    set(&mut connection, &fence("k", older), "r", "older").await.unwrap();
    set(&mut connection, &fence("k", newer), "r", "newer").await.unwrap();
    set(&mut connection, &fence("k", newer), "r", "newer again").await.unwrap();
    for stale in [older, 10, 9] {
        let error = set(&mut connection, &fence("k", stale), "r", "stale").await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::FenceStale { seen: newer });
    }
    let error = set(&mut connection, &fence("other", newer), "r", "foreign").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::FenceInvalid);
    assert_eq!(value().as_deref(), Some("newer again"));

    // The guard outlives the resource.
    delete(&mut connection, &fence("k", newer), "r").await.unwrap();
    assert_eq!(value(), None);
    let count = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    let error = count.run(&mut connection, &fence("k", older), "r", &["4"]).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::FenceStale { seen: newer });
    assert_eq!(value(), None);
    assert_eq!(count.run(&mut connection, &fence("k", newer), "r", &["4"]).await.unwrap(), redis::Value::Int(4));
    assert_eq!(value().as_deref(), Some("4"));
    let nothing = Script::new("");
    assert_eq!(nothing.run(&mut connection, &fence("k", newer), "r", NOTHING).await.unwrap(), redis::Value::Nil);
}
