//! Requests of many tasks that leave together, as one transaction of the server.

use std::pin::pin;
use std::sync::Arc;

use dlock::backends::etcd::Etcd;
use dlock::{Clock, ErrorKind, Key, LockKey};
use dlock_contract::{Backend, Claim, Hold, Queue, Released};
use dlock_testkit::holds::token;
use dlock_testkit::wait_until;
use futures::FutureExt;
use futures::future::{join_all, select_all};

use crate::faults::{fill, open, raw as raw_of, started_with};
use crate::server::{ask, claim, line, lock, long_claim, process, shared, soon};
use crate::slow::Slow;

pub(crate) fn locks() -> Vec<LockKey> {
    (0..16).map(|_| lock("together")).collect()
}

/// A process that has its lease already. Its first request keeps the connection busy, so the others leave together.
pub(crate) async fn warm() -> Etcd {
    let process = process().await;
    let hold = ask(&process, &claim(&lock("lease"))).await.unwrap();
    process.release(&hold).await.unwrap();
    process
}

pub(crate) async fn ask_all(process: &Etcd, claims: &[Arc<Claim>]) -> Vec<Option<Hold>> {
    join_all(claims.iter().map(|claim| ask(process, claim))).await
}

#[tokio::test]
async fn locks_that_are_wanted_at_once_are_granted_and_freed_together() {
    let (process, keys) = (warm().await, locks());
    let claims: Vec<_> = keys.iter().map(claim).collect();
    let holds: Vec<_> = ask_all(&process, &claims).await.into_iter().map(Option::unwrap).collect();
    for (key, hold) in keys.iter().zip(&holds) {
        assert_eq!(hold.claim.key, *key);
        assert_eq!(line(key).await.len(), 1);
    }
    // All but the first have the revision of one transaction.
    let mut tokens: Vec<_> = holds.iter().map(token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert!(tokens.len() <= 3, "they went one by one: {tokens:?}");
    let released = join_all(holds.iter().map(|hold| process.release(hold))).await;
    assert!(released.into_iter().all(|released| released.unwrap() == Released::Released));
    for (key, hold) in keys.iter().zip(&holds) {
        assert!(line(key).await.is_empty());
        let next = ask(&process, &claim(key)).await.unwrap();
        assert!(token(&next) > token(hold));
    }
}

/// The server refuses more than 128 operations in one transaction.
#[tokio::test]
async fn more_locks_than_one_transaction_can_have_are_granted_in_few() {
    let (process, keys) = (warm().await, (0..130).map(|_| lock("many")).collect::<Vec<_>>());
    let claims: Vec<_> = keys.iter().map(claim).collect();
    let mut tokens: Vec<_> = ask_all(&process, &claims).await.iter().flatten().map(token).collect();
    assert_eq!(tokens.len(), 130);
    tokens.sort_unstable();
    tokens.dedup();
    // The first one, two full transactions, and the last one.
    assert_eq!(tokens.len(), 4, "{tokens:?}");
}

/// The keys of `a/b` are among those of `a`, as for the other tools. In one transaction both would find the lock free.
#[tokio::test]
async fn literal_locks_that_lie_within_each_other_do_not_leave_together() {
    let process = Etcd::open(&format!("{}?keys=literal", shared()), &Clock::system()).await.unwrap();
    let key = |id: u64, end| LockKey::new("any", Key::text("pair/").value(&id).and_text(end)).unwrap();
    let id = || fastrand::u64(..);
    ask(&process, &claim(&key(id(), ""))).await.unwrap();
    for (first, second) in [("", "/b"), ("/b", "")] {
        let id = id();
        let keys = [key(fastrand::u64(..), ""), key(id, first), key(id, second)];
        let holds = ask_all(&process, &keys.each_ref().map(claim)).await;
        if let (Some(one), Some(other)) = (&holds[1], &holds[2]) {
            assert_ne!(token(one), token(other), "they left together");
        }
        assert!(holds[1..].iter().any(Option::is_some));
    }
}

#[tokio::test]
async fn a_lock_that_is_taken_is_refused_alone() {
    let (process, other, keys) = (warm().await, process().await, locks());
    for key in keys.iter().step_by(3) {
        ask(&other, &claim(key)).await.unwrap();
    }
    let claims: Vec<_> = keys.iter().map(claim).collect();
    for (at, hold) in ask_all(&process, &claims).await.into_iter().enumerate() {
        assert_eq!(hold.is_some(), at % 3 != 0, "{at}");
        assert_eq!(line(&keys[at]).await.len(), 1);
    }
}

/// All keys of one transaction have one revision, so two contenders of a lock in it would have no order.
#[tokio::test]
async fn of_two_claims_of_a_lock_at_once_one_gets_it() {
    let (process, keys) = (warm().await, locks());
    for waits in [false, true] {
        let claims: Vec<_> = keys.iter().chain(&keys).chain(&keys).map(claim).collect();
        let queue = if waits { Queue::until(soon()) } else { Queue::Leave };
        let attempts = join_all(claims.iter().map(|claim| process.try_acquire(claim, queue))).await;
        let mut holders = vec![0; keys.len()];
        for (at, attempt) in attempts.into_iter().enumerate() {
            holders[at % keys.len()] += usize::from(matches!(attempt, Ok(dlock_contract::Attempt::Acquired(_))));
        }
        assert_eq!(holders, vec![1; keys.len()], "{waits}");
        join_all(claims.iter().map(|claim| process.abandon(claim))).await;
    }
}

/// The server refuses all that left together, since some of them would put a key.
#[tokio::test]
async fn without_space_locks_are_freed_although_others_are_wanted_at_once() {
    let server = started_with(&["--quota-backend-bytes", "400000"]);
    let (process, mut raw) = (open(&server).await, raw_of(&server).await);
    let (held, wanted) = (locks(), locks());
    let claims: Vec<_> = held.iter().map(claim).collect();
    let holds: Vec<_> = ask_all(&process, &claims).await.into_iter().map(Option::unwrap).collect();
    fill(&mut raw).await;
    wait_until("the server refuses each put", async || raw.clone().put("small", "", None).await.is_err())
        .await
        .unwrap();
    let wanted: Vec<_> = wanted.iter().map(claim).collect();
    let releases = join_all(holds.iter().map(|hold| process.release(hold)));
    let asked = join_all(wanted.iter().map(|claim| process.try_acquire(claim, Queue::Leave)));
    let (asked, released) = tokio::join!(asked, releases);
    assert!(released.into_iter().all(|released| released.unwrap() == Released::Released));
    assert!(asked.into_iter().all(|asked| *asked.unwrap_err().kind() == ErrorKind::Outage));
}

#[tokio::test]
async fn a_request_that_was_given_up_before_the_others_left_does_not_leave() {
    let (process, keys) = (warm().await, locks());
    let claims: Vec<_> = keys.iter().map(claim).collect();
    let mut asked: Vec<_> = claims.iter().map(|claim| Box::pin(ask(&process, claim))).collect();
    // Each has taken its first step: the first one has left, and the others wait for each other.
    assert!(select_all(asked.iter_mut()).now_or_never().is_none());
    drop(asked.remove(5));
    let holds = join_all(asked).await;
    assert!(holds.into_iter().all(|hold| hold.is_some()));
    assert!(line(&keys[5]).await.is_empty(), "nobody wants it any more");
}

#[test]
fn attempts_that_left_together_and_arrive_after_their_abandons_take_nothing() {
    let (it, keys) = (Slow::start(), locks());
    it.slow.block_on(ask(&it.process, &long_claim(&lock("other")))).unwrap();
    let claims: Vec<_> = keys.iter().map(long_claim).collect();
    it.proxy.keep();
    let sent = it.slow.block_on(it.left(pin!(ask_all(&it.process, &claims))));
    it.good.block_on(async {
        for claim in &claims {
            it.process.abandon(claim).await.unwrap();
        }
    });
    it.arrive(&sent);
    it.good.block_on(async {
        for key in &keys {
            assert!(line(key).await.is_empty(), "nobody would ever delete it");
        }
        assert!(
            ask_all(&it.process, &keys.iter().map(long_claim).collect::<Vec<_>>()).await.iter().all(Option::is_some)
        );
    });
}
