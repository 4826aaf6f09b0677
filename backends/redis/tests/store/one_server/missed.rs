//! News that never comes: pushes that are lost, processes that are gone, a line that was flushed away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dlock::Clock;
use dlock::backends::redis::Redis;
use dlock_contract::{Attempt, Backend, Claim, Released, Signal, Standing};
use dlock_testkit::holds::{claim, stand, take, token, until, wait};
use dlock_testkit::{Mode, Proxy, wait_until};
use futures::FutureExt;
use redis::{Commands, ToRedisArgs};

use super::database::{Database, HOUR, granted, unrenewed};
use crate::names::{self, FENCE, K, K_PROCESSES, K_QUEUE};

/// Only a hang comes near it.
const LONG: Duration = Duration::from_secs(60);

fn tell<T: redis::FromRedisValue>(server: &Database<impl Sized>, words: &[impl ToRedisArgs]) -> T {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.query(&mut server.raw()).unwrap()
}

fn line(server: &Database<impl Sized>) -> Vec<String> {
    tell(server, &["ZRANGE", K_QUEUE, "0", "-1"])
}

fn changed(claim: Arc<Claim>, change: impl FnOnce(&mut Claim)) -> Arc<Claim> {
    let mut claim = Arc::unwrap_or_clone(claim);
    change(&mut claim);
    Arc::new(claim)
}

/// Does this store wait for pushes? Asked with a claim of its own for a lock that is held.
async fn hears(redis: &Redis) -> bool {
    let probe = claim("held", HOUR);
    let hears = stand(redis, &probe).await.signal.is_some();
    redis.abandon(&probe).await.unwrap();
    hears
}

/// A waiter whose pushes have gone asks from its place: nothing of the place is left when it has won.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_won_while_nothing_can_be_pushed_leaves_no_place_behind() {
    for fair in [false, true] {
        let server = Database::own(&[]);
        let _: () = tell(&server, &["ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all"]);
        let one = server.open().await;
        let url = format!("redis://app:pw@127.0.0.1:{}/", server.port());
        let two = Redis::connect(&url, &Clock::system()).await.unwrap();
        let (_present, _held) = (take(&one, &claim("k", HOUR)).await, take(&one, &claim("held", HOUR)).await);
        // A grant that is pushed to it lasts for an hour, unless it is given back.
        let waiter = changed(unrenewed("k"), |claim| claim.fair = fair);
        let wake = stand(&two, &waiter).await;
        let entry = line(&server).remove(0);

        let _: () = tell(&server, &["ACL", "SETUSER", "app", "-subscribe"]);
        let killed: i64 = tell(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_eq!(killed, 1);
        wait_until("the store finds out", async || !hears(&two).await).await.unwrap();
        // The lease ends; a release would have served the line.
        let _: () = tell(&server, &["DEL", K]);
        let Attempt::Acquired(hold) = two.try_acquire(&waiter, until()).await.unwrap() else { panic!("{fair}") };
        drop(wake);
        assert_eq!(server.keys(), [FENCE, &names::of_text("held"), K], "{fair}");
        assert_eq!(two.release(&hold).await.unwrap(), Released::Released);
        drop(hold);

        let _: () = tell(&server, &["ACL", "SETUSER", "app", "+subscribe"]);
        wait_until("something is pushed again", async || hears(&two).await).await.unwrap();
        // As if its last request had come late: what is pushed to it is given back, for nobody waits for it.
        let present = take(&one, &claim("k", HOUR)).await;
        // It asks again and again: a place is gone after some seconds without that.
        let next = claim("k", HOUR);
        tokio::join!(wait(&two, &next, LONG), async {
            wait_until("the next one stands in line", async || line(&server).len() == 1).await.unwrap();
            let _: () = tell(&server, &["ZADD", K_QUEUE, "1", &*entry]);
            assert_eq!(one.release(&present).await.unwrap(), Released::Released);
        });
    }
}

/// The server believes that the push was heard. The waiter finds out by asking, and it is the same claim that has won.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_push_costs_a_poll_and_not_the_lock() {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let one = server.open().await;
    let two = Redis::connect(&url, &Clock::system()).await.unwrap();
    let present = take(&one, &claim("k", HOUR)).await;
    let waiter = claim("k", HOUR);
    let mut wake = stand(&two, &waiter).await;
    // The connection on which something comes now falls silent for ever, and no other.
    proxy.set(Mode::Blackhole { to_server: false, to_client: true });
    let heard: i64 = tell(&server, &["PUBLISH", &names::channel(&line(&server)[0][..16]), "?"]);
    assert_eq!(heard, 1);
    wait_until("something is swallowed", async || proxy.swallowing() == 1).await.unwrap();
    proxy.set(Mode::Pass);
    assert_eq!(one.release(&present).await.unwrap(), Released::Released);
    assert!(line(&server).is_empty());
    Clock::system().sleep_until(wake.ask_by.unwrap()).await;
    // On a busy machine the listener may have found the silence.
    let told = wake.signal.as_mut().unwrap().now_or_never();
    assert!(matches!(told, None | Some(Ok(Signal::Ask))), "{told:?}");
    let Attempt::Acquired(hold) = two.try_acquire(&waiter, until()).await.unwrap() else { panic!() };
    assert!(hold.claim.owner == waiter.owner && token(&hold) > token(&present));
    let value: String = server.raw().get(K).unwrap();
    assert!(value.starts_with(&waiter.owner.to_hex()));
    assert!(matches!(two.renew(&[&hold]).await[..], [Ok(Standing::Renewed(_))]));
    assert_eq!(two.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(server.keys(), [FENCE]);
}

/// It is subscribed still, but has not asked for longer than its place lasts: whoever stands behind it is next, at
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_has_not_asked_for_long_is_skipped() {
    let server = Database::own(&[]);
    let (one, two) = (server.open().await, server.open().await);
    let present = take(&one, &claim("k", HOUR)).await;
    let mut silent = stand(&two, &claim("k", HOUR)).await;
    let next = unrenewed("k");
    let mut wake = stand(&one, &next).await;
    let _: () = tell(&server, &["HSET", K_PROCESSES, &line(&server)[0][..16], "1"]);
    assert_eq!(one.release(&present).await.unwrap(), Released::Released);
    // The release itself has handed it on.
    let value: String = server.raw().get(K).unwrap();
    assert!(value.starts_with(&next.owner.to_hex()), "{value}");
    let hold = granted(&mut wake, LONG).await.unwrap();
    assert!(silent.signal.as_mut().unwrap().now_or_never().is_none());
    assert_eq!(hold.claim.owner, next.owner);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_over_a_flush_get_the_lock_once_each() {
    let server = Database::own(&[]);
    let stores = [Arc::new(server.open().await), Arc::new(server.open().await)];
    let first = take(&*stores[0], &claim("k", HOUR)).await;
    let inside = Arc::new(AtomicBool::new(false));
    let waiter = |number: usize| {
        let (store, inside) = (stores[number % 2].clone(), inside.clone());
        // Granted for its whole ttl: no machine is so busy that one ends by itself.
        let claim = changed(claim("k", HOUR), |claim| claim.renewed = false);
        tokio::spawn(async move {
            let hold = wait(&*store, &claim, 2 * LONG).await;
            assert!(!inside.swap(true, Ordering::SeqCst), "two hold it");
            tokio::task::yield_now().await;
            assert!(inside.swap(false, Ordering::SeqCst));
            assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
            token(&hold)
        })
    };
    let waiting: Vec<_> = (0..10).map(waiter).collect();
    wait_until("they stand in line", async || line(&server).len() == 10).await.unwrap();
    let _: () = tell(&server, &["FLUSHALL"]);
    assert_eq!(stores[0].release(&first).await.unwrap(), Released::NotOwner);
    let mut tokens = vec![token(&first)];
    for waiter in waiting {
        tokens.push(waiter.await.unwrap());
    }
    assert!(tokens[1..].iter().all(|later| *later > tokens[0]), "{tokens:?}");
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 11);
    assert_eq!(server.keys(), [FENCE]);
}
