//! Requests that arrive late, after their claim was given up, and what is remembered of such claims.

use std::pin::pin;
use std::time::Duration;

use dlock::Clock;
use dlock::backends::etcd::Etcd;
use dlock_contract::{Backend, Keeps, Mode, Queue, Released, Standing};
use dlock_testkit::holds::claim_on;
use dlock_testkit::{Proxy, wait_until};
use tokio::time::timeout;

use crate::server::{LONG, NEWS, ask, claim_for, line, lock, long_claim as claim, process, shared, stand};
use crate::slow::Slow;

/// Long enough for a request to leave.
const MOMENT: Duration = Duration::from_millis(200);

#[test]
fn an_abandon_that_arrives_late_deletes_nothing_of_the_next_claim() {
    for mode in [Mode::Exclusive, Mode::permits(2)] {
        let it = Slow::start();
        let (other, key) = (lock("other"), lock("seat"));
        let claim_as = || claim_on(&key, LONG, |claim| claim.mode = mode);
        let stays = it.slow.block_on(ask(&it.process, &claim(&other))).unwrap();
        let given_up = claim_as();
        it.slow.block_on(ask(&it.process, &given_up)).unwrap();
        // The key, and the mark of a permit.
        let names = it.good.block_on(line(&key));
        it.proxy.keep();
        let sent = it.slow.block_on(async { it.left(pin!(it.process.abandon(&given_up))).await });
        it.good.block_on(async {
            // The renewal deletes what was left behind. Then an abandon has nothing to do, and the name is free again.
            assert!(matches!(it.process.renew(&[&stays]).await.pop().unwrap().unwrap(), Standing::Renewed(_)));
            assert!(line(&key).await.is_empty());
            it.process.abandon(&given_up).await.unwrap();
            let next = ask(&it.process, &claim_as()).await.unwrap();
            assert_eq!(line(&key).await, names, "its names are other ones, so this test shows nothing");
            it.arrive(&sent);
            assert_eq!(line(&key).await, names, "{mode:?}");
            assert!(matches!(it.process.renew(&[&next]).await.pop().unwrap().unwrap(), Standing::Renewed(_)));
        });
    }
}

#[test]
fn an_attempt_that_arrives_after_its_repetition_was_refused_takes_nothing() {
    let it = Slow::start();
    let key = lock("refused");
    it.slow.block_on(ask(&it.process, &claim(&lock("other")))).unwrap();
    let late = claim(&key);
    it.proxy.keep();
    let sent = it.slow.block_on(async { it.left(pin!(it.process.try_acquire(&late, Queue::Leave))).await });
    it.good.block_on(async {
        let other = process().await;
        let hold = ask(&other, &claim(&key)).await.unwrap();
        assert!(ask(&it.process, &late).await.is_none());
        other.release(&hold).await.unwrap();
    });
    it.arrive(&sent);
    assert!(it.good.block_on(line(&key)).is_empty(), "nobody would ever delete it");
}

#[test]
fn a_permit_whose_marking_was_not_answered_leaves_no_mark() {
    for asks_again in [true, false] {
        let (it, key) = (Slow::start(), lock("mark"));
        it.slow.block_on(ask(&it.process, &claim(&lock("other")))).unwrap();
        let claim = claim_on(&key, LONG, |claim| claim.mode = Mode::permits(2));
        it.proxy.keep();
        let sent = it.slow.block_on(async {
            let mut asked = pin!(stand(&it.process, &claim));
            // It enters, and then it marks its slot.
            it.proxy.deliver(&it.left(asked.as_mut()).await);
            it.left(asked.as_mut()).await
        });
        it.arrive(&sent);
        it.good.block_on(async {
            wait_until("this test's network delivers", async || line(&key).await.len() == 2).await.unwrap();
            if asks_again {
                let hold = ask(&it.process, &claim).await.expect("its own mark is in its way");
                assert_eq!(hold.slot, Some(0));
                assert_eq!(it.process.release(&hold).await.unwrap(), Released::Released);
            } else {
                it.process.abandon(&claim).await.unwrap();
            }
            assert!(line(&key).await.is_empty(), "our lease keeps it alive, and nobody deletes it");
        });
    }
}

/// Without this, each release that is given up would leave an entry in the process for good.
#[test]
fn after_an_end_that_was_given_up_its_claim_is_forgotten() {
    let it = Slow::start();
    let holds = ["released", "kept"].map(|name| it.slow.block_on(ask(&it.process, &claim(&lock(name)))).unwrap());
    it.proxy.keep();
    it.slow.block_on(async {
        timeout(MOMENT, it.process.release(&holds[0])).await.unwrap_err();
        timeout(MOMENT, it.process.keep(&holds[1], LONG, None)).await.unwrap_err();
        for hold in &holds {
            // If the claim were still remembered, the abandon would ask the store and hang.
            timeout(NEWS, it.process.abandon(&hold.claim)).await.expect("it is remembered").unwrap();
        }
    });
}

#[test]
fn a_claim_that_is_dropped_between_two_places_is_remembered() {
    let (it, key) = (Slow::start(), lock("between"));
    let asks = claim_for(&key, LONG, false);
    let other = it.good.block_on(process());
    let _held = it.good.block_on(ask(&other, &claim(&key))).unwrap();
    it.slow.block_on(ask(&it.process, &claim(&lock("other")))).unwrap();
    it.proxy.keep();
    it.slow.block_on(async {
        {
            let mut asked = pin!(it.process.try_acquire(&asks, Queue::Leave));
            // A lease, the refused attempt, and the end of the lease, which is not answered.
            for _ in 0..2 {
                it.proxy.deliver(&it.left(asked.as_mut()).await);
            }
            it.left(asked.as_mut()).await;
        }
        {
            // Another lease, and the end of the former place.
            let mut asked = pin!(it.process.try_acquire(&asks, Queue::Leave));
            it.proxy.deliver(&it.left(asked.as_mut()).await);
            it.left(asked.as_mut()).await;
        }
        let abandoned = timeout(MOMENT, it.process.abandon(&asks)).await;
        assert!(abandoned.is_err(), "nothing is known of what may still arrive");
    });
}

/// The engine gives some releases up. No other request would name their keys, and our lease would keep them alive.
#[tokio::test]
async fn the_key_of_a_release_that_never_left_and_was_given_up_is_deleted_later() {
    let (proxy, url) = Proxy::in_front_of(&shared()).unwrap();
    let process = Etcd::open(&url, &Clock::system()).await.unwrap();
    let (given_up, kept) = (lock("given up"), lock("kept"));
    let stays = ask(&process, &claim(&lock("stays"))).await.unwrap();
    let (released, keeps) =
        (ask(&process, &claim(&given_up)).await.unwrap(), ask(&process, &claim(&kept)).await.unwrap());
    proxy.set(dlock_testkit::Mode::Refuse);
    // From then on there is no connection, so nothing leaves.
    wait_until("the end of the connection", async || {
        let asked = process.try_acquire(&claim(&lock("asks")), Queue::Leave).await;
        asked.is_err_and(|error| !error.may_have_left())
    })
    .await
    .unwrap();
    assert!(process.release(&released).await.is_err());
    assert!(process.keep(&keeps, LONG * 10, None).await.is_err());
    proxy.set(dlock_testkit::Mode::Pass);
    let renewed = async || matches!(process.renew(&[&stays]).await.remove(0), Ok(Standing::Renewed(_)));
    wait_until("the renewal", renewed).await.unwrap();
    assert_eq!(line(&given_up).await.len(), 1, "the engine may still ask for this release");
    drop((released, keeps));
    wait_until("the key to be deleted", async || renewed().await && line(&given_up).await.is_empty()).await.unwrap();
    assert_eq!(line(&kept).await.len(), 1, "`min_hold` keeps it");
}
