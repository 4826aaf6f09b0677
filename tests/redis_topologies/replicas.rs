//! `wait_replicas`, with replicas that hear and with some that do not.

use dlock::{Attempt, Backend, ErrorKind, Stand};
use dlock_testkit::servers::{Instance, Redis};

use crate::holds::{take, token};
use crate::{MS, SECOND, blocking, claim, name, open, refusal, take_soon, with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_too_few_replicas_have_is_given_back() {
    let (primary, replica) = blocking(|| {
        let primary = Instance::start(Redis::default()).unwrap();
        let of = format!("127.0.0.1 {}", primary.port());
        let replica = Instance::start(Redis::with(&["--replicaof", &of, "--repl-diskless-sync-delay", "0"])).unwrap();
        while !replica.ask("INFO replication").unwrap().contains("master_link_status:up") {
            std::thread::sleep(10 * MS);
        }
        (primary, replica)
    })
    .await;
    let redis = open(&with(&primary.url(), "wait_replicas=1")).await;
    let hold = take(&redis, &claim("k", 10 * SECOND)).await;
    assert_eq!(replica.ask(&format!("EXISTS {}", name("k"))).unwrap(), "1");

    // A release hands the lock on; who gets it asks, so that its replicas are waited for too.
    let next = claim("k", 10 * SECOND);
    let until = Stand::Until(dlock::Clock::system().now().after(60 * SECOND));
    let Attempt::Contended(mut wake) = redis.try_acquire(&next, until).await.unwrap() else { panic!() };
    redis.release(&hold).await.unwrap();
    let news = tokio::time::timeout(SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    assert!(matches!(news, dlock::Signal::Ask));
    let Attempt::Acquired(second) = redis.try_acquire(&next, until).await.unwrap() else { panic!() };
    assert!(token(&second) > token(&hold));
    redis.release(&second).await.unwrap();

    replica.pause().unwrap();
    let error = refusal(&redis, &claim("k", 10 * SECOND)).await;
    assert_eq!(*error.kind(), ErrorKind::Outage);
    assert!(error.is_retryable() && error.to_string().contains("0 of 1 replicas"), "{error}");
    assert_eq!(primary.ask(&format!("EXISTS {}", name("k"))).unwrap(), "0", "nothing is left of it");
    replica.resume().unwrap();
    take_soon(&redis, &claim("k", 10 * SECOND), 10 * SECOND).await;

    // More than there are.
    let redis = open(&with(&primary.url(), "wait_replicas=2")).await;
    let error = refusal(&redis, &claim("other", SECOND)).await;
    assert!(error.to_string().contains("1 of 2 replicas"), "{error}");
}
