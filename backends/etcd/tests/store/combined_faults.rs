//! Requests of many tasks that leave together, and fail: the failure of one must not become that of the others, and nothing
//! may be sent twice.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dlock::backends::etcd::client::{Client, GetOptions, PutOptions};
use dlock::{ErrorKind, LockKey};
use dlock_contract::{Attempt, Backend, Claim, Exchange, Mode, Owner, Queue, Released};
use dlock_testkit::Mode as NetworkMode;
use dlock_testkit::holds::{claim_on, token};
use dlock_testkit::servers::Instance;
use futures::FutureExt;
use futures::future::{join_all, select_all};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::combined::{ask_all, locks, warm};
use crate::faults::{fill, open, raw as raw_of, started_with};
use crate::server::{TTL, ask, claim, claim_for, lock, long_claim, own, prefix, raw, soon, url};
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

#[test]
fn of_requests_that_left_together_when_the_connection_broke_nothing_is_known_and_nothing_stays() {
    for delivered in [false, true] {
        let (it, keys) = (Slow::start(), locks());
        it.slow.block_on(ask(&it.process, &long_claim(&lock("other")))).unwrap();
        let claims: Vec<_> = keys.iter().map(long_claim).collect();
        it.proxy.keep();
        it.slow.block_on(async {
            let mut asked = pin!(join_all(claims.iter().map(|claim| it.process.try_acquire(claim, Queue::Leave))));
            let sent = it.left(asked.as_mut()).await;
            if delivered {
                it.proxy.set(NetworkMode::DropReplies);
                it.proxy.deliver(&sent);
            } else {
                it.proxy.cut();
            }
            for answer in asked.await {
                let error = answer.unwrap_err();
                assert!(*error.kind() == ErrorKind::Outage && error.is_retryable(), "{error}");
            }
        });
        it.proxy.set(NetworkMode::Pass);
        it.good.block_on(async {
            join_all(claims.iter().map(|claim| it.process.abandon(claim))).await.into_iter().for_each(Result::unwrap);
            let mut raw = raw().await;
            for key in &keys {
                assert!(is_free(&mut raw, key).await, "delivered: {delivered}");
            }
            let again: Vec<_> = keys.iter().map(long_claim).collect();
            assert!(ask_all(&it.process, &again).await.iter().all(Option::is_some), "delivered: {delivered}");
        });
    }
}

/// The server refuses a transaction that puts a key on a lease that has ended, and all that is inside of it.
#[tokio::test]
async fn a_lease_that_has_ended_harms_no_request_on_another_lease() {
    let (process, held, wanted) = (warm().await, locks(), locks());
    let held: Vec<_> = held.iter().map(claim).collect();
    let held: Vec<_> = ask_all(&process, &held).await.into_iter().map(Option::unwrap).collect();
    let long = |key: &LockKey| claim_for(key, TTL * 20, true);
    let ended = ask(&process, &long(&lock("ended"))).await.unwrap().group();
    raw().await.lease_revoke(ended.unwrap() as i64).await.unwrap();
    let wanted: Vec<_> = wanted.iter().map(long).collect();
    let released = join_all(held.iter().map(|hold| process.release(hold)));
    let (asked, released) = tokio::join!(ask_all(&process, &wanted), released);
    assert!(asked.into_iter().all(|hold| hold.unwrap().group() != ended));
    assert!(released.into_iter().all(|released| released.unwrap() == Released::Released));
}

#[tokio::test]
async fn without_space_a_release_that_also_asks_for_the_next_caller_only_releases() {
    let server = started_with(&["--quota-backend-bytes", "400000"]);
    let (process, key, mut raw) = (open(&server).await, lock("handed on"), raw_of(&server).await);
    let hold = ask(&process, &claim_for(&key, TTL * 20, true)).await.unwrap();
    fill(&mut raw).await;
    let next = claim_for(&key, TTL * 20, true);
    let (released, answer) = process.release_to(&hold, &next, soon()).await.unwrap();
    assert!(released == Released::Released && answer.is_none());
    assert!(is_free(&mut raw, &key).await);
    // Nothing is remembered of a claim that may have a key: an abandon would ask the server, which is not there.
    server.kill9().unwrap();
    process.abandon(&next).await.unwrap();
}

/// The server refuses a transaction that puts a key twice, and all that is inside of it.
#[test]
fn two_abandons_that_change_one_epoch_key_do_not_leave_together() {
    let (server, keys) = (own(), locks());
    let it = Slow::before(&url(&server));
    it.slow.block_on(ask(&it.process, &claim(&lock("other")))).unwrap();
    // The first byte of the owner chooses the epoch key. The last claim has that of another one.
    let shards = (1..16).chain([7]);
    let claims: Vec<_> = keys.iter().zip(shards).map(|(key, shard)| claim_of_shard(key, shard)).collect();
    it.proxy.keep();
    it.slow.block_on(it.left(pin!(ask_all(&it.process, &claims))));
    one_thread().block_on(async {
        // This connects, so that the abandons leave in one step.
        it.process.look(&keys[0]).await.unwrap();
        let mut raw = raw_of(&server).await;
        let before = revision(&mut raw).await;
        join_all(claims.iter().map(|claim| it.process.abandon(claim))).await.into_iter().for_each(Result::unwrap);
        // The first one, all others but the last, and the last one.
        assert_eq!(revision(&mut raw).await - before, 3);
    });
}

fn claim_of_shard(key: &LockKey, shard: u8) -> Arc<Claim> {
    claim_on(key, TTL, |claim| {
        let mut owner = *claim.owner.as_bytes();
        owner[0] = shard;
        claim.owner = Owner::from_bytes(owner);
    })
}

async fn revision(raw: &mut Client) -> i64 {
    raw.get("none", None).await.unwrap().header().unwrap().revision()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The callers may be polled elsewhere.
#[test]
fn requests_that_wait_to_leave_fail_when_their_runtime_ends() {
    let (ends, stays) = (one_thread(), one_thread());
    let process = ends.block_on(warm());
    let claims: Vec<_> = locks().iter().map(claim).collect();
    let mut asked: Vec<_> = claims.iter().map(|claim| Box::pin(process.try_acquire(claim, Queue::Leave))).collect();
    assert!(ends.block_on(async { select_all(asked.iter_mut()).now_or_never() }).is_none());
    drop(ends);
    stays.block_on(async {
        let answers = timeout(Duration::from_secs(30), join_all(asked)).await.expect("nobody tells them");
        assert!(answers.iter().all(|answer| *answer.as_ref().unwrap_err().kind() == ErrorKind::Outage), "{answers:?}");
    });
}
