//! A grant that is pushed is looked at as one that is answered.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, Backend, Signal};
use dlock_testkit::holds::{claim, stand, take, token, until};
use dlock_testkit::servers::{Instance, Redis};
use dlock_testkit::{Mode, Proxy, wait_until};

use super::{MS, SECOND, blocking, name, open, refusal, with};
use crate::names::FENCE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_pushed_by_a_server_that_may_have_forgotten_is_asked_for_again() {
    let server = blocking(|| Instance::start(Redis::default()).unwrap()).await;
    let holder = open(&with(&server.url(), "failover_guard=off")).await;
    let waiter = open(&server.url()).await;
    let hold = take(&holder, &claim("k", 60 * SECOND)).await;
    let next = claim("k", 60 * SECOND);
    let mut wake = stand(&waiter, &next).await;
    // Everything is there still, and the way of pushes stays open.
    for request in ["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"] {
        server.ask(request).unwrap();
    }
    let _ = server.ask("CLIENT KILL TYPE normal");
    let is_held_back = async || refusal(&waiter, &claim("other", SECOND)).await.to_string().contains("failover_guard");
    wait_until("grants are held back", is_held_back).await.unwrap();
    wait_until("it is released", async || holder.release(&hold).await.is_ok()).await.unwrap();
    let news = tokio::time::timeout(30 * SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    assert!(matches!(news, Signal::Ask), "{news:?}");
    assert!(refusal(&waiter, &next).await.to_string().contains("failover_guard"));
    waiter.abandon(&next).await.unwrap();
    take(&holder, &claim("k", SECOND)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pushed_token_is_not_below_the_tokens_seen_before() {
    let server = blocking(|| Instance::start(Redis::default()).unwrap()).await;
    let (holder, waiter) = (open(&server.url()).await, open(&server.url()).await);
    let seen = token(&take(&waiter, &claim("seen", SECOND)).await);
    let hold = take(&holder, &claim("k", 60 * SECOND)).await;
    let next = claim("k", 60 * SECOND);
    let mut wake = stand(&waiter, &next).await;
    server.ask(&format!("SET {FENCE} {}", seen - 1_000_000)).unwrap();
    holder.release(&hold).await.unwrap();
    let news = tokio::time::timeout(30 * SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    assert!(matches!(news, Signal::Ask), "{news:?}");
    let Attempt::Acquired(next) = waiter.try_acquire(&next, until()).await.unwrap() else { panic!() };
    assert!(token(&next) > seen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_overtakes_the_answer_is_believed_whatever_was_seen_meanwhile() {
    let server = blocking(|| Instance::start(Redis::default()).unwrap()).await;
    let (proxy, url) = Proxy::in_front_of(&server.url()).unwrap();
    let (holder, waiter) = (open(&server.url()).await, Arc::new(open(&url).await));
    take(&holder, &claim("other", 60 * SECOND)).await;
    // From now on pushes arrive.
    drop(stand(&*waiter, &claim("other", 60 * SECOND)).await);
    let hold = take(&holder, &claim("k", 60 * SECOND)).await;
    let mut next = claim("k", 600 * SECOND);
    // Granted for its whole ttl, of which a tenth may pass on the way.
    Arc::make_mut(&mut next).renewed = false;
    waiter.expects_others(&next.key);

    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: 2 * SECOND });
    let asking = tokio::spawn({
        let (waiter, next) = (waiter.clone(), next.clone());
        async move { waiter.try_acquire(&next, until()).await }
    });
    let in_line = async || server.ask(&format!("ZCARD {}:q", name("k"))).unwrap() == "1";
    wait_until("it stands in line", in_line).await.unwrap();
    // The answer is on its way by then, else this would prove less.
    tokio::time::sleep(100 * MS).await;
    proxy.set(Mode::Pass);
    holder.release(&hold).await.unwrap();
    server.ask(&format!("INCRBY {FENCE} 1000000")).unwrap();
    // Over another connection, which has nothing to wait for.
    let seen = blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        token(&runtime.block_on(take(&*waiter, &claim("seen", 60 * SECOND))))
    })
    .await;
    let Attempt::Contended(mut wake) = asking.await.unwrap().unwrap() else { panic!() };
    let news = tokio::time::timeout(30 * SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    let Signal::Granted(given) = news else { panic!("{news:?}") };
    assert!(token(&given) > token(&hold) && token(&given) + 1_000_000 <= seen);
}
