//! Requests of many tasks that leave together, and fail: the failure of one must not become that of the others, and nothing
//! may be sent twice.

use std::pin::pin;
use std::time::Duration;

use dlock::LockKey;
use dlock::backends::etcd::client::{Client, GetOptions, PutOptions};
use dlock_contract::{Attempt, Backend, Mode, Queue, Released};
use dlock_testkit::holds::{claim_on, token};
use dlock_testkit::servers::Instance;
use futures::future::join_all;

use crate::combined::{ask_all, locks, warm};
use crate::faults::{open, raw as raw_of, started_with};
use crate::server::{TTL, ask, claim, claim_for, lock, prefix, raw, soon, url};
use crate::slow::Slow;

/// A server that refuses what leaves together as too large.
fn strict() -> Instance {
    started_with(&["--max-request-bytes", "4096"])
}

async fn is_free(raw: &mut Client, key: &LockKey) -> bool {
    raw.get(prefix(key), Some(GetOptions::new().with_prefix())).await.unwrap().kvs().is_empty()
}

/// The client library reads no answer of more than 4 MiB, if nobody tells it to.
#[tokio::test]
async fn a_release_that_leaves_with_requests_for_large_answers_is_sent_once() {
    let (held, wanted, mut raw) = (locks(), locks(), raw().await);
    let lease = raw.lease_grant(60, None).await.unwrap().id();
    for key in &wanted {
        // A claim for a permit reads the marks of all slots, with their values.
        let mark = format!("{}~p000003e8.000003e7", prefix(key));
        let value = format!("nobody {}", "x".repeat(400_000));
        raw.put(mark, value, Some(PutOptions::new().with_lease(lease))).await.unwrap();
    }
    let process = warm().await;
    let held: Vec<_> = held.iter().map(claim).collect();
    let held: Vec<_> = ask_all(&process, &held).await.into_iter().map(Option::unwrap).collect();
    let wanted: Vec<_> =
        wanted.iter().map(|key| claim_on(key, TTL, |claim| claim.mode = Mode::permits(1000))).collect();
    let asked = join_all(wanted.iter().map(|claim| process.try_acquire(claim, Queue::until(soon()))));
    let released = join_all(held.iter().map(|hold| process.release(hold)));
    let (asked, released) = tokio::join!(asked, released);
    assert!(released.into_iter().all(|released| released.unwrap() == Released::Released));
    assert!(asked.into_iter().all(|asked| matches!(asked, Ok(Attempt::Acquired(_)))));
    raw.lease_revoke(lease).await.unwrap();
}

#[tokio::test]
async fn requests_that_are_too_large_together_are_sent_one_by_one() {
    let server = strict();
    let process = open(&server).await;
    ask(&process, &claim(&lock("other"))).await.unwrap();
    let claims: Vec<_> = locks().iter().map(claim).collect();
    let holds: Vec<_> = ask_all(&process, &claims).await.into_iter().map(Option::unwrap).collect();
    let mut tokens: Vec<_> = holds.iter().map(token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), holds.len(), "they were not too large, so this test shows nothing");
    let released = join_all(holds.iter().map(|hold| process.release(hold))).await;
    assert!(released.into_iter().all(|released| released.unwrap() == Released::Released));
}

#[test]
fn a_request_that_was_given_up_is_not_sent_again_by_itself() {
    let (server, keys) = (strict(), locks());
    let it = Slow::on_one_thread(&url(&server));
    let long = |key: &LockKey| claim_for(key, Duration::from_secs(60), true);
    it.slow.block_on(ask(&it.process, &long(&lock("other")))).unwrap();
    let claims: Vec<_> = keys.iter().map(long).collect();
    it.proxy.keep();
    it.slow.block_on(async {
        let mut asked: Vec<_> = claims.iter().map(|claim| Box::pin(ask(&it.process, claim))).collect();
        let together = it.left(pin!(join_all(&mut asked))).await;
        drop(asked.remove(5));
        it.proxy.deliver(&together);
        // The first one left before the others.
        assert!(asked.remove(0).await.is_some());
        let one_by_one = it.left(pin!(join_all(&mut asked))).await;
        it.proxy.deliver(&one_by_one);
        assert!(join_all(asked).await.iter().all(Option::is_some));
        assert!(is_free(&mut raw_of(&server).await, &keys[5]).await, "nobody wants it any more");
    });
}
