//! `layout=redisson` beside Redisson's `RLock`.

use dlock::backends::redis::Redisson;
use dlock::{Clock, ErrorKind};
use dlock_contract::{Backend, Queue, Released, Signal, Standing, Wake};
use dlock_testkit::holds::{SITE, confirm, stand, take, token, wait};
use redis::Commands;

use super::bench::{Bench, LONG, MS, SECOND};
use super::rlock::{RLock, WATCHDOG_MS, message};

/// Waits only for the notification, because a waiter that asks again by itself would get the lock anyway.
async fn told(mut wake: Wake) {
    let signal = wake.signal.take().expect("nothing is heard");
    let news = tokio::time::timeout(LONG, signal).await.expect("nothing was told").unwrap();
    assert!(matches!(news, Signal::Ask));
}

/// Waits for the lock from now on, and hears of its release; on a busy machine the first tries may not.
async fn listen(store: &impl Backend, claim: &std::sync::Arc<dlock_contract::Claim>) -> Wake {
    loop {
        let wake = stand(store, claim).await;
        if wake.signal.is_some() {
            return wake;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_lock_is_one_that_rlock_understands() {
    let bench = Bench::new();
    let (ours, mut java) = (bench.redisson().await, RLock::new(&bench));
    let hold = take(&ours, &bench.claim(LONG)).await;
    let fields: Vec<(String, u64)> = bench.raw().hgetall(&bench.name).unwrap();
    assert!(matches!(&fields[..], [(field, 1)] if field.len() == 38 && field.ends_with(":0")), "{fields:?}");
    let left = java.lock(WATCHDOG_MS).unwrap();
    assert!(left > 0 && left <= 30_000, "{left}");
    assert_eq!((java.unlock(), java.renew()), (None, false));
    assert!(matches!(confirm(&ours, &hold).await, Standing::Renewed(_)));
    assert_eq!(ours.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(bench.keys(), [""; 0]);
    assert_eq!(java.lock(WATCHDOG_MS), None);
    assert_eq!(ours.release(&hold).await.unwrap(), Released::NotOwner);
    assert_eq!(confirm(&ours, &hold).await, Standing::Lost);
    assert_eq!(java.unlock(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_thread_of_redisson_hears_of_our_release() {
    let bench = Bench::new();
    let (ours, java) = (bench.redisson().await, RLock::new(&bench));
    let hold = take(&ours, &bench.claim(LONG)).await;
    let (send, subscribed) = tokio::sync::oneshot::channel();
    let waiting = tokio::task::spawn_blocking(move || {
        java.subscribe(|pubsub| {
            send.send(()).unwrap();
            message(pubsub, LONG)
        })
    });
    subscribed.await.unwrap();
    ours.release(&hold).await.unwrap();
    // The number that Redisson's listener compares with.
    assert_eq!(waiting.await.unwrap().as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reentrant_thread_of_redisson_keeps_us_out_until_its_last_unlock() {
    let bench = Bench::new();
    let (ours, mut java) = (bench.redisson().await, RLock::new(&bench));
    let earlier = take(&ours, &bench.claim(LONG)).await;
    ours.release(&earlier).await.unwrap();
    assert_eq!((java.lock(WATCHDOG_MS), java.lock(WATCHDOG_MS)), (None, None));
    let before = bench.value();
    let claim = bench.claim(LONG);
    let wake = stand(&ours, &claim).await;
    assert!(wake.lease_left.unwrap() > 10 * SECOND);
    assert_eq!(bench.value(), before);
    assert!(java.renew());
    let told_of = ours.look(&bench.key).await.unwrap().note().cloned().unwrap();
    assert!(told_of.as_str().contains("Redisson") && told_of.pid().is_none(), "{told_of}");
    // It was taken twice, so the first end tells nothing.
    assert_eq!(java.unlock(), Some(0));
    let again = listen(&ours, &claim).await;
    assert_eq!(java.unlock(), Some(1));
    told(again).await;
    drop(wake);
    let hold = wait(&ours, &claim, LONG).await;
    assert!(token(&hold) > token(&earlier));
    let note = ours.look(&bench.key).await.unwrap().note().cloned().unwrap();
    assert_eq!((note.pid(), note.site()), (Some(std::process::id()), Some(SITE)));
    ours.release(&hold).await.unwrap();
    assert!(ours.look(&bench.key).await.unwrap().note().cloned().is_none());
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_dead_redisson_service_ends_with_its_lease() {
    let bench = Bench::new();
    let (ours, mut java) = (bench.redisson().await, RLock::new(&bench));
    assert_eq!(java.lock(2000), None);
    let claim = bench.claim(LONG);
    let wake = stand(&ours, &claim).await;
    let left = wake.lease_left.unwrap();
    assert!(left <= 2 * SECOND, "{left:?}");
    drop(wake);
    let hold = wait(&ours, &claim, LONG).await;
    assert_eq!(java.unlock(), None);
    ours.release(&hold).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_asks_twice_holds_the_lock_once() {
    let bench = Bench::new();
    let (ours, mut java) = (bench.redisson().await, RLock::new(&bench));
    let claim = bench.claim(LONG);
    let first = take(&ours, &claim).await;
    let second = take(&ours, &claim).await;
    assert!(token(&second) > token(&first));
    let counts: Vec<u64> = bench.raw().hvals(&bench.name).unwrap();
    assert_eq!(counts, [1]);
    assert_eq!(ours.release(&second).await.unwrap(), Released::Released);
    assert_eq!(java.lock(WATCHDOG_MS), None);
    java.unlock();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_listens_while_it_waits_and_no_longer() {
    let bench = Bench::new();
    let (ours, mut java) = (bench.redisson().await, RLock::new(&bench));
    let listeners = async |java: &mut RLock, wanted| {
        let end = std::time::Instant::now() + LONG;
        while java.listeners() != wanted {
            assert!(std::time::Instant::now() < end, "{} listen", java.listeners());
            tokio::time::sleep(5 * MS).await;
        }
    };
    // Without a waiter there is no subscription.
    let hold = take(&ours, &bench.claim(LONG)).await;
    ours.release(&hold).await.unwrap();
    assert_eq!(java.lock(WATCHDOG_MS), None);
    assert!(matches!(
        ours.try_acquire(&bench.claim(SECOND), Queue::Leave).await.unwrap(),
        dlock_contract::Attempt::Contended(_)
    ));
    assert_eq!(java.listeners(), 0);
    // Two waiters of one process listen once.
    let (one, two) = (bench.claim(LONG), bench.claim(LONG));
    let wakes = (listen(&ours, &one).await, listen(&ours, &two).await);
    listeners(&mut java, 1).await;
    ours.abandon(&one).await.unwrap();
    let again = listen(&ours, &two).await;
    assert_eq!(java.listeners(), 1);
    drop(wakes);
    java.unlock();
    told(again).await;
    let hold = wait(&ours, &two, LONG).await;
    listeners(&mut java, 0).await;
    ours.release(&hold).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_connection_breaks_asks_and_listens_again() {
    let mut bench = Bench::new();
    // A server of its own, since every listener of it is cut off.
    let server = dlock_testkit::servers::Instance::start(dlock_testkit::servers::Redis::default()).unwrap();
    bench.url = server.url();
    let (ours, mut java) = (bench.redisson().await, RLock::new(&bench));
    assert_eq!(java.lock(WATCHDOG_MS), None);
    let claim = bench.claim(LONG);
    let wake = listen(&ours, &claim).await;
    java.cut_listeners();
    told(wake).await;
    let end = std::time::Instant::now() + LONG;
    while java.listeners() == 0 {
        assert!(std::time::Instant::now() < end, "nobody listens any more");
        tokio::time::sleep(5 * MS).await;
    }
    let wake = listen(&ours, &claim).await;
    assert_eq!(java.unlock(), Some(1));
    told(wake).await;
    let hold = wait(&ours, &claim, LONG).await;
    ours.release(&hold).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_cannot_subscribe_is_not_promised_a_notification() {
    let mut bench = Bench::new();
    let server = dlock_testkit::servers::Instance::start(dlock_testkit::servers::Redis::default()).unwrap();
    bench.url = server.url();
    let (ours, mut java, mut raw) = (bench.redisson().await, RLock::new(&bench), bench.raw());
    assert_eq!(java.lock(WATCHDOG_MS), None);
    let claim = bench.claim(LONG);
    let wake = listen(&ours, &claim).await;
    // The server accepts no more connections, so the listening one cannot come back.
    let mut config = |most: u32| {
        let () = redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(most).query(&mut raw).unwrap();
    };
    config(1);
    java.cut_listeners();
    told(wake).await;
    while stand(&ours, &claim).await.signal.is_some() {
        tokio::time::sleep(5 * MS).await;
    }
    config(1000);
    let wake = listen(&ours, &claim).await;
    assert_eq!(java.unlock(), Some(1));
    told(wake).await;
}

/// Without this, the orders of many callers would pile up for as long as the server cannot be reached. Each of them would
/// reach the server later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_left_while_nothing_could_be_opened_leave_no_orders_behind() {
    let mut bench = Bench::new();
    let server = dlock_testkit::servers::Instance::start(dlock_testkit::servers::Redis::default()).unwrap();
    bench.url = server.url();
    let (ours, mut java, mut raw) = (bench.redisson().await, RLock::new(&bench), bench.raw());
    let other = Bench { url: server.url(), ..Bench::new() };
    let mut elsewhere = RLock::new(&other);
    assert_eq!((java.lock(10 * WATCHDOG_MS), elsewhere.lock(10 * WATCHDOG_MS)), (None, None));
    let claim = bench.claim(LONG);
    let wake = listen(&ours, &claim).await;
    // The server accepts no more connections.
    let () = redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(1).query(&mut raw).unwrap();
    java.cut_listeners();
    told(wake).await;
    while stand(&ours, &claim).await.signal.is_some() {
        tokio::time::sleep(5 * MS).await;
    }
    ours.abandon(&claim).await.unwrap();
    for _ in 0..20 {
        let leaves = bench.claim(LONG);
        drop(stand(&ours, &leaves).await);
        ours.abandon(&leaves).await.unwrap();
    }
    let refused = |raw: &mut redis::Connection| count(raw, "stats", "rejected_connections:");
    let before = refused(&mut raw);
    // After the first refusal the orders are dropped, and the second one comes after that.
    let again = async || refused(&mut raw) >= before + 2;
    dlock_testkit::wait_until("the server has refused two connections", again).await.unwrap();
    let () = redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(1000).query(&mut raw).unwrap();
    let waits = listen(&ours, &other.claim(LONG)).await;
    // Now that the connection is open, an order comes after all earlier ones.
    let third = Bench { url: server.url(), ..Bench::new() };
    assert_eq!(RLock::new(&third).lock(10 * WATCHDOG_MS), None);
    let last = listen(&ours, &third.claim(LONG)).await;
    assert_eq!(count(&mut raw, "commandstats", "cmdstat_unsubscribe:calls="), 0);
    assert_eq!(elsewhere.unlock(), Some(1));
    told(waits).await;
    drop(last);
}

/// A number in the server's report; 0 if it is not there.
fn count(raw: &mut redis::Connection, section: &str, name: &str) -> u64 {
    let report: String = redis::cmd("INFO").arg(section).query(raw).unwrap();
    let digits = report.split_once(name).map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap());
    digits.map_or(0, |digits| digits.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_no_lock_of_redissons_is_a_conflict_and_stays() {
    let bench = Bench::new();
    let ours = bench.redisson().await;
    let writes: [fn(&mut redis::Connection, &str); 3] = [
        |raw, name| raw.set(name, "somebody else's").unwrap(),
        |raw, name| raw.set_ex(name, "a lock of redis-py's", 30).unwrap(),
        |raw, name| raw.lpush(name, "a").unwrap(),
    ];
    for write in writes {
        write(&mut bench.raw(), &bench.name);
        bench.conflicts(&ours).await;
    }
    // A hash that never ends is no lock, but has a holder by its looks.
    let _: () = bench.raw().hset(&bench.name, "a", "b").unwrap();
    let before = bench.value();
    let error = ours.try_acquire(&bench.claim(SECOND), Queue::Leave).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::KeyConflict);
    assert_eq!(bench.value(), before);
    let _: () = bench.raw().del(&bench.name).unwrap();
    // Nor does our other layout mix with this one.
    let literal = bench.literal().await;
    let hold = take(&literal, &bench.claim(LONG)).await;
    let error = ours.try_acquire(&bench.claim(SECOND), Queue::Leave).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::KeyConflict);
    literal.release(&hold).await.unwrap();
}

#[tokio::test]
async fn a_parameter_without_a_meaning_in_this_layout_is_refused() {
    let bench = Bench::new();
    let url = format!("{}?layout=redisson&wait_replicas=1", bench.url);
    let error = Redisson::connect(&url, &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }));
}
