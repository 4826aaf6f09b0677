//! A grant that is pushed is looked at as one that is answered.

use std::time::Instant;

use dlock::{Attempt, Backend, Signal};
use dlock_testkit::servers::{Instance, Redis};

use crate::holds::{stand, take, token};
use crate::{MS, SECOND, blocking, claim, open, refusal, with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_hands_on_that_may_have_forgotten_is_asked_for_again() {
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
    let end = Instant::now() + 30 * SECOND;
    while !refusal(&waiter, &claim("other", SECOND)).await.to_string().contains("failover_guard") {
        assert!(Instant::now() < end, "nothing is held back");
        tokio::time::sleep(20 * MS).await;
    }
    while holder.release(&hold).await.is_err() {
        assert!(Instant::now() < end, "it cannot be released");
        tokio::time::sleep(20 * MS).await;
    }
    let news = tokio::time::timeout(30 * SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    assert!(matches!(news, Signal::Ask), "{news:?}");
    assert!(refusal(&waiter, &next).await.to_string().contains("failover_guard"));
    waiter.abandon(&next).await.unwrap();
    take(&holder, &claim("k", SECOND)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pushed_token_is_not_below_those_that_were_seen() {
    let server = blocking(|| Instance::start(Redis::default()).unwrap()).await;
    let (holder, waiter) = (open(&server.url()).await, open(&server.url()).await);
    let seen = token(&take(&waiter, &claim("seen", SECOND)).await);
    let hold = take(&holder, &claim("k", 60 * SECOND)).await;
    let next = claim("k", 60 * SECOND);
    let mut wake = stand(&waiter, &next).await;
    server.ask(&format!("SET dl1:fence {}", seen - 1_000_000)).unwrap();
    holder.release(&hold).await.unwrap();
    let news = tokio::time::timeout(30 * SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    assert!(matches!(news, Signal::Ask), "{news:?}");
    let Attempt::Acquired(next) = waiter.try_acquire(&next, crate::holds::until()).await.unwrap() else { panic!() };
    assert!(token(&next) > seen);
}
