//! `wait_replicas`, with replicas that hear and with some that do not.

use std::slice;

use dlock::ErrorKind;
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::{claim, confirm, stand, take, token};
use dlock_testkit::servers::{Instance, Make, Redis, wait_until_followed};

use super::accounts::calls;
use super::{SECOND, blocking, handed, name, open, refusal, take_soon, with};
use crate::names::RIGHTS;

/// A primary, and a replica that follows it.
pub(crate) fn with_replica() -> (Instance, Instance) {
    let primary = Instance::start(Redis::with(&["--repl-diskless-sync-delay", "0"])).unwrap();
    let replica = Instance::start(Redis::with(&["--replicaof", &format!("127.0.0.1 {}", primary.port())])).unwrap();
    wait_until_followed(&primary, slice::from_ref(&replica)).unwrap();
    (primary, replica)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_too_few_replicas_have_is_released() {
    let (primary, replica) = blocking(with_replica).await;
    let redis = open(&with(&primary.url(), "wait_replicas=1")).await;
    let hold = take_soon(&redis, &claim("k", 60 * SECOND), 60 * SECOND).await;
    assert_eq!(replica.ask(&format!("EXISTS {}", name("k"))).unwrap(), "1");

    // A release hands the lock on; who gets it asks, so that its replicas are waited for too.
    let next = claim("k", 60 * SECOND);
    let until = Queue::until(dlock::Clock::system().now().after(60 * SECOND));
    let Attempt::Contended(mut wake) = redis.try_acquire(&next, until).await.unwrap() else { panic!() };
    redis.release(&hold).await.unwrap();
    let news = tokio::time::timeout(30 * SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    assert!(matches!(news, dlock_contract::Signal::Ask));
    let Attempt::Acquired(second) = redis.try_acquire(&next, until).await.unwrap() else { panic!() };
    assert!(token(&second) > token(&hold));
    redis.release(&second).await.unwrap();

    replica.pause().unwrap();
    let refused = claim("k", 60 * SECOND);
    let error = refusal(&redis, &refused).await;
    assert_eq!(*error.kind(), ErrorKind::Outage);
    assert!(error.is_retryable() && error.to_string().contains("0 of 1 replicas"), "{error}");
    assert_eq!(primary.ask(&format!("EXISTS {}", name("k"))).unwrap(), "1");
    // As the engine does after every failure, and nobody else.
    redis.abandon(&refused).await.unwrap();
    assert_eq!(primary.ask(&format!("EXISTS {}", name("k"))).unwrap(), "0", "nothing is left of it");
    replica.resume().unwrap();
    take_soon(&redis, &claim("k", 60 * SECOND), 60 * SECOND).await;

    // More than there are.
    let redis = open(&with(&primary.url(), "wait_replicas=2")).await;
    let error = refusal(&redis, &claim("other", SECOND)).await;
    assert!(error.to_string().contains("1 of 2 replicas"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_forgotten_all_scripts_knows_those_of_locks_once_a_store_is_open() {
    let (primary, _replica) = blocking(with_replica).await;
    for url in [primary.url(), with(&primary.url(), "wait_replicas=1")] {
        for request in ["SCRIPT FLUSH", "CONFIG RESETSTAT"] {
            primary.ask(request).unwrap();
        }
        let redis = open(&url).await;
        let hold = take_soon(&redis, &claim("k", 60 * SECOND), 60 * SECOND).await;
        assert!(matches!(confirm(&redis, &hold).await, Standing::Renewed(_)));
        let next = claim("k", 60 * SECOND);
        let mut wake = stand(&redis, &next).await;
        assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
        let hold = handed(&redis, &next, &mut wake).await;
        assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
        redis.abandon(&next).await.unwrap();
        let (calls, errors) = (calls(&primary, "evalsha").0, primary.ask("INFO errorstats").unwrap());
        assert!(calls > 3 && !errors.contains("NOSCRIPT"), "{url}: {calls} {errors}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_can_compare_and_delete_releases_without_a_script() {
    for (make, command) in [(Make::Valkey, "delifeq"), (Make::Redis8, "delex")] {
        let server = blocking(move || Instance::start(Redis { make, ..Redis::default() }).unwrap()).await;
        let redis = open(&server.url()).await;
        let calls = |command: &str| {
            let stats = server.ask("INFO commandstats").unwrap();
            let start = format!("cmdstat_{command}:calls=");
            let line = stats.lines().find_map(|line| line.strip_prefix(&start).map(str::to_owned));
            line.map_or(0, |line| line.split(',').next().unwrap().parse::<u64>().unwrap())
        };
        let scripts = calls("evalsha");
        for _ in 0..5 {
            let hold = take(&redis, &claim("k", 60 * SECOND)).await;
            assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
        }
        assert_eq!((calls(command), calls("evalsha")), (5, scripts), "{command}");
        // A foreign lock is left alone, and a waiter is handed the lock.
        let hold = take(&redis, &claim("k", 60 * SECOND)).await;
        let next = claim("k", 60 * SECOND);
        let until = Queue::until(dlock::Clock::system().now().after(60 * SECOND));
        let Attempt::Contended(mut wake) = redis.try_acquire(&next, until).await.unwrap() else { panic!() };
        assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
        assert_eq!(redis.release(&hold).await.unwrap(), Released::NotOwner);
        let next = handed(&redis, &next, &mut wake).await;
        redis.release(&next).await.unwrap();

        // An account that may not: the script does the same.
        server.ask(&format!("ACL SETUSER old reset on >pw {RIGHTS} +@all -{command}")).unwrap();
        let old = open(&format!("redis://old:pw@127.0.0.1:{}/", server.port())).await;
        for _ in 0..2 {
            let hold = take(&old, &claim("k", 60 * SECOND)).await;
            assert_eq!(old.release(&hold).await.unwrap(), Released::Released);
            assert_eq!(old.release(&hold).await.unwrap(), Released::NotOwner);
        }
    }
}
