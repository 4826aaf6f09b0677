//! One lock from its grant to its end.

use std::time::Duration;

use dlock::{Clock, Key, LockKey, Registry};
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::{SITE, claim, claim_on, stand, take, until};
use futures::future::join_all;
use redis::Commands;

use super::database::{Database, HOUR, SECOND, renew};
use crate::names::{self, FENCE, K};

#[tokio::test]
async fn a_cycle_leaves_nothing_but_the_counter() {
    let server = Database::shared();
    let redis = server.open().await;
    let first = take(&redis, &claim("k", HOUR)).await;
    assert_eq!(server.keys(), [FENCE, K]);
    let note = redis.look(&first.claim.key).await.unwrap().note().cloned().unwrap();
    assert_eq!((note.site(), note.pid()), (Some(SITE), Some(std::process::id())));
    assert_eq!(redis.release(&first).await.unwrap(), Released::Released);
    assert_eq!(server.keys(), [FENCE]);
    assert!(redis.look(&first.claim.key).await.unwrap().note().cloned().is_none());
    assert_eq!(redis.release(&first).await.unwrap(), Released::NotOwner);
    let second = take(&redis, &claim("k", HOUR)).await;
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
        let hold = take(&redis, &claim("k", HOUR)).await;
        redis.release(&hold).await.unwrap();
    }
    let spent: Vec<_> = calls().iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(spent, [10, 10, 10, 10, 0, 0]);
}

#[tokio::test]
async fn a_second_owner_is_refused_and_leaves_nothing() {
    let server = Database::shared();
    let (one, two) = (server.open().await, server.open().await);
    let hold = take(&one, &claim("k", HOUR)).await;
    let before = server.keys();
    let refused = async || match two.try_acquire(&claim("k", HOUR), Queue::Leave).await.unwrap() {
        Attempt::Contended(wake) => wake.held_by,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused().await, Some(hold.claim.note.clone()));
    assert_eq!(server.keys(), before);
    // The value of a lock that others wait for has a mark behind the note.
    let waits = claim("k", HOUR);
    drop(stand(&two, &waits).await);
    assert_eq!(refused().await, Some(hold.claim.note.clone()));
    two.abandon(&waits).await.unwrap();
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    take(&two, &claim("k", HOUR)).await;
}

#[tokio::test]
async fn the_same_owner_may_ask_again_and_the_lease_begins_anew() {
    let server = Database::shared();
    let redis = server.open().await;
    for queue in [Queue::Leave, until()] {
        let claim = claim("k", HOUR);
        let first = take(&redis, &claim).await;
        let _: () = server.raw().pexpire(K, 500).unwrap();
        let before = Clock::system().now();
        let Attempt::Acquired(second) = redis.try_acquire(&claim, queue).await.unwrap() else { panic!() };
        assert!(second.token > first.token && second.validity.from >= before);
        let left: i64 = server.raw().pttl(K).unwrap();
        assert!(left > 1000, "{left}");
        assert_eq!(redis.release(&second).await.unwrap(), Released::Released);
        assert_eq!(server.keys(), [FENCE]);
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
    assert_eq!(server.keys(), [FENCE]);
    let present = take(&redis, &claim("k", HOUR)).await;
    assert_eq!(redis.release(&late).await.unwrap(), Released::NotOwner);
    assert_eq!(renew(&redis, &[&late]).await, [Standing::Lost]);
    assert_eq!(redis.release(&present).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn releases_and_renewals_that_leave_together_touch_nobody_elses_locks() {
    let server = Database::own(&[]);
    let (redis, other) = (server.open().await, server.open().await);
    let named = |n: u64| LockKey::new("test", Key::text("k").value(&n)).unwrap();
    let asked = |n: u64| claim_on(&named(n), HOUR, |_| ());
    let (mut late, mut present) = (Vec::new(), Vec::new());
    for n in 0..12 {
        late.push(take(&redis, &asked(n)).await);
        if n % 3 == 0 {
            let _: () = server.raw().del(names::of(&named(n))).unwrap();
            present.push(take(&other, &asked(n)).await);
            let _: () = server.raw().pexpire(names::of(&named(n)), 600_000).unwrap();
        }
    }
    let standings = renew(&redis, &late.iter().collect::<Vec<_>>()).await;
    let lost: Vec<_> = standings.iter().map(|standing| *standing == Standing::Lost).collect();
    assert_eq!(lost, (0..12).map(|n| n % 3 == 0).collect::<Vec<_>>());
    for n in [0, 3, 6, 9] {
        let left: i64 = server.raw().pttl(names::of(&named(n))).unwrap();
        assert!(left <= 600_000, "a renewal that was told as Lost has prolonged another one's lock");
    }
    let released = join_all(late.iter().map(|hold| redis.release(hold))).await;
    for (n, released) in released.into_iter().enumerate() {
        let expected = if n % 3 == 0 { Released::NotOwner } else { Released::Released };
        assert_eq!(released.unwrap(), expected, "{n}");
    }
    for hold in present {
        assert_eq!(other.release(&hold).await.unwrap(), Released::Released);
    }
}

#[tokio::test]
async fn a_batch_is_renewed_in_order_also_after_the_scripts_are_gone() {
    let server = Database::own(&[]);
    let redis = server.open().await;
    let mut holds = Vec::new();
    for n in 0..250_u64 {
        holds.push(take(&redis, &claim(&n.to_string(), HOUR)).await);
    }
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.raw()).unwrap();
    let _: () = server.raw().del(names::of_text("120")).unwrap();
    let _: () = server.raw().pexpire(names::of_text("121"), 600_000).unwrap();
    let standings = renew(&redis, &holds.iter().collect::<Vec<_>>()).await;
    let renewed = Standing::Renewed(dlock_contract::Validity::new(Clock::manual().now(), HOUR));
    for (n, standing) in standings.iter().enumerate() {
        assert_eq!(*standing, if n == 120 { Standing::Lost } else { renewed }, "{n}");
    }
    assert_eq!(standings.len(), 250);
    let left: i64 = server.raw().pttl(names::of_text("121")).unwrap();
    assert!(left > 600_000, "{left}");
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.raw()).unwrap();
    assert_eq!(redis.release(&holds[0]).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn an_expired_lock_goes_to_the_next_but_not_earlier() {
    let server = Database::shared();
    let redis = server.open().await;
    let waiter = claim("k", HOUR);
    let wake = loop {
        take(&redis, &claim("k", SECOND)).await;
        tokio::time::sleep(SECOND / 3).await;
        match redis.try_acquire(&waiter, until()).await.unwrap() {
            Attempt::Contended(wake) => break wake,
            // The machine was slower than the lease.
            Attempt::Acquired(hold) => redis.release(&hold).await.map(drop).unwrap(),
            Attempt::AlreadyRun => panic!("a claim without a period"),
        }
    };
    // The server's time for the lease began later than ours, by what the machine took for the request.
    Clock::system().sleep_until(wake.ask_by.unwrap()).await;
    dlock_testkit::holds::wait(&redis, &waiter, Duration::from_secs(60)).await;
}

/// A task of a `LocalSet` has an id of tokio's, and need not be in a runtime: its requests run on our thread.
#[test]
fn a_task_outside_of_every_runtime_is_served() {
    let server = Database::own(&[]);
    let registry = Registry::new();
    let local = tokio::task::LocalSet::new();
    futures::executor::block_on(local.run_until(async {
        let task = tokio::task::spawn_local(async move {
            registry.connect("redis", &server.url).await?;
            registry.lock("k").backend("redis").acquire().await?.release().await
        });
        task.await.unwrap().unwrap();
    }));
}
