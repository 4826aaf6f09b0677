//! Answers that nobody hears: dropped futures, slow networks. Nothing may be left behind that our lease would keep
//! alive.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dlock::Clock;
use dlock_contract::{Backend, Keeps, Mode, Queue, Released, Standing};
use dlock_testkit::holds::claim_on;
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::wait_until;
use tokio::time::timeout;

use crate::faults::{fill, raw};
use crate::server::{LONG, ask, claim_for, line, lock, long_claim as claim, process, stand, url};
use crate::slow::Slow;

#[tokio::test]
async fn attempts_dropped_anywhere_leave_nothing_and_harm_no_other_hold() {
    let process = Arc::new(process().await);
    let (kept, key) = (lock("kept"), lock("dropped"));
    let hold = ask(&process, &claim(&kept)).await.unwrap();
    let mut outcomes = [0, 0];
    // A quick server answers most of them in time.
    while outcomes[0] <= 20 || outcomes[0] + outcomes[1] < 200 {
        assert!(outcomes[1] < 5000, "hardly any was dropped in time: {outcomes:?}");
        let claim = claim(&key);
        let point = Duration::from_micros(fastrand::u64(..2500));
        outcomes[usize::from(timeout(point, stand(&process, &claim)).await.is_ok())] += 1;
        process.abandon(&claim).await.unwrap();
    }
    assert!(line(&key).await.is_empty());
    assert!(matches!(process.renew(&[&hold]).await.pop().unwrap().unwrap(), Standing::Renewed(_)));
    assert!(ask(&process, &claim(&key)).await.is_some());
    // The answer to a later request. A dropped attempt that was still under way would be here by now.
    assert_eq!(line(&key).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandons_do_not_disturb_the_attempts_beside_them() {
    let process = Arc::new(process().await);
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..8 {
        let process = process.clone();
        tasks.spawn(async move {
            for _ in 0..30 {
                let claim = claim(&lock("beside"));
                if worker % 2 == 0 {
                    let _ = timeout(Duration::from_micros(fastrand::u64(..2000)), stand(&process, &claim)).await;
                    process.abandon(&claim).await.unwrap();
                } else {
                    let hold = ask(&process, &claim).await.unwrap();
                    assert_eq!(process.release(&hold).await.unwrap(), Released::Released);
                }
            }
        });
    }
    tasks.join_all().await;
}

#[test]
fn an_attempt_whose_answer_was_lost_has_the_lock_already() {
    let it = Slow::start();
    let (other, key) = (lock("other"), lock("lost"));
    it.slow.block_on(ask(&it.process, &claim(&other))).unwrap();
    let claim = claim(&key);
    let sent = it.send(&claim);
    it.arrive(&sent);
    it.good.block_on(async {
        wait_until("this test's network delivers", async || line(&key).await.len() == 1).await.unwrap();
        let before = Clock::system().now();
        let hold = ask(&it.process, &claim).await.expect("its own key is in its way");
        assert!(hold.validity.from >= before);
        assert_eq!(it.process.release(&hold).await.unwrap(), Released::Released);
    });
}

#[test]
fn readers_and_permits_whose_answer_was_lost_have_the_lock_already() {
    for mode in [Mode::Read, Mode::permits(1)] {
        let (it, key) = (Slow::start(), lock("lost share"));
        it.slow.block_on(ask(&it.process, &claim(&lock("other")))).unwrap();
        let claim = claim_on(&key, LONG, |claim| claim.mode = mode);
        let sent = it.send(&claim);
        it.arrive(&sent);
        it.good.block_on(async {
            wait_until("this test's network delivers", async || line(&key).await.len() == 1).await.unwrap();
            let hold = ask(&it.process, &claim).await.expect("its own key is in its way");
            assert!(
                matches!(it.process.renew(&[&hold]).await.pop().unwrap().unwrap(), Standing::Renewed(_)),
                "{mode:?}"
            );
            assert_eq!(it.process.release(&hold).await.unwrap(), Released::Released);
            assert!(line(&key).await.is_empty(), "{mode:?}");
        });
    }
}

#[test]
fn an_attempt_that_arrives_after_its_abandon_is_refused() {
    let it = Slow::start();
    let (other, key) = (lock("other"), lock("late"));
    let hold = it.slow.block_on(ask(&it.process, &claim(&other))).unwrap();
    let late = claim(&key);
    let sent = it.send(&late);
    it.good.block_on(it.process.abandon(&late)).unwrap();
    it.arrive(&sent);
    it.good.block_on(async {
        assert!(line(&key).await.is_empty(), "nobody would ever delete it");
        assert!(matches!(it.process.renew(&[&hold]).await.pop().unwrap().unwrap(), Standing::Renewed(_)));
        assert!(ask(&it.process, &claim(&key)).await.is_some());
    });
}

#[test]
fn an_attempt_that_arrives_after_the_release_of_its_repetition_is_refused() {
    let it = Slow::start();
    let (other, key) = (lock("other"), lock("repeated"));
    it.slow.block_on(ask(&it.process, &claim(&other))).unwrap();
    let late = claim(&key);
    let sent = it.send(&late);
    let hold = it.good.block_on(ask(&it.process, &late)).unwrap();
    assert_eq!(it.good.block_on(it.process.release(&hold)).unwrap(), Released::Released);
    it.arrive(&sent);
    assert!(it.good.block_on(line(&key)).is_empty(), "nobody would ever delete it");
}

#[test]
fn a_release_that_was_given_up_is_done_by_the_next_renewal() {
    let it = Slow::start();
    let (other, key) = (lock("other"), lock("orphan"));
    let stays = it.slow.block_on(ask(&it.process, &claim(&other))).unwrap();
    let hold = it.slow.block_on(ask(&it.process, &claim(&key))).unwrap();
    it.proxy.keep();
    it.slow.block_on(async { it.left(pin!(it.process.release(&hold))).await });
    it.good.block_on(async {
        assert_eq!(line(&key).await.len(), 1);
        assert!(matches!(it.process.renew(&[&stays]).await.pop().unwrap().unwrap(), Standing::Renewed(_)));
        assert!(line(&key).await.is_empty(), "our lease keeps it alive, and nobody deletes it");
        assert_eq!(it.process.release(&hold).await.unwrap(), Released::NotOwner);
        assert_eq!(line(&other).await.len(), 1);
    });
}

#[test]
fn a_key_to_be_kept_is_not_freed_because_the_answer_was_lost() {
    let it = Slow::start();
    let long = LONG * 2;
    let reader = |key: &_| claim_on(key, LONG, |claim| claim.mode = Mode::Read);
    let (other, key) = (lock("other"), lock("kept"));
    let stays = it.slow.block_on(ask(&it.process, &claim(&other))).unwrap();
    let hold = it.slow.block_on(ask(&it.process, &reader(&key))).unwrap();
    it.proxy.keep();
    let sent = it.slow.block_on(async {
        let mut asked = pin!(it.process.keep(&hold, long, None));
        // First the request for a lease, which is answered, then the one that moves the key.
        it.proxy.deliver(&it.left(asked.as_mut()).await);
        it.left(asked.as_mut()).await
    });
    let renew = async || it.process.renew(&[&stays]).await.pop().unwrap().unwrap();
    it.good.block_on(async {
        assert!(matches!(renew().await, Standing::Renewed(_)));
        assert_eq!(line(&key).await.len(), 1, "its time is not over");
    });
    it.arrive(&sent);
    it.good.block_on(async {
        assert_eq!(it.process.keep(&hold, long, None).await.unwrap(), Released::NotOwner, "it had not arrived");
        drop(hold);
        assert!(matches!(renew().await, Standing::Renewed(_)));
        assert_eq!(line(&key).await.len(), 1, "its time is not over");
        assert!(ask(&it.process, &reader(&key)).await.is_some(), "it has the name of the key that is kept");
    });
}

#[test]
fn an_unanswered_renewal_is_unknown_and_not_lost() {
    let it = Slow::start();
    let hold = it.slow.block_on(ask(&it.process, &claim(&lock("unanswered")))).unwrap();
    it.proxy.keep();
    // The engine gives it up; then the connection is cut.
    it.slow.block_on(async { timeout(Duration::from_millis(1100), it.process.renew(&[&hold])).await }).unwrap_err();
    // Silent for more than a second: the next request goes over another connection.
    let before = it.proxy.connections();
    assert!(matches!(it.slow.block_on(it.process.renew(&[&hold])).pop().unwrap().unwrap(), Standing::Renewed(_)));
    assert!(it.proxy.connections() > before);
}

#[test]
fn an_attempt_that_steps_back_late_ends_nothing_that_the_same_claim_has_won() {
    for renewed in [true, false] {
        let (it, key) = (Slow::start(), lock("back"));
        let asks = claim_for(&key, LONG, renewed);
        let other = it.good.block_on(process());
        let hold = it.good.block_on(ask(&other, &claim(&key))).unwrap();
        if renewed {
            // It has a place in the queue, and asks without one: what it has there is deleted.
            assert!(it.slow.block_on(stand(&it.process, &asks)).is_err());
        }
        it.proxy.keep();
        let sent = it.slow.block_on(async {
            let mut asked = pin!(it.process.try_acquire(&asks, Queue::Leave));
            // The look at the queue; or the request for a lease and the attempt.
            for _ in 0..if renewed { 1 } else { 2 } {
                it.proxy.deliver(&it.left(asked.as_mut()).await);
            }
            it.left(asked.as_mut()).await
        });
        it.good.block_on(async {
            other.release(&hold).await.unwrap();
            let next = ask(&it.process, &asks).await.unwrap();
            it.arrive(&sent);
            let standing = it.process.renew(&[&next]).await.pop().unwrap().unwrap();
            assert!(matches!(standing, Standing::Renewed(_)), "renewed: {renewed}");
            assert_eq!(it.process.release(&next).await.unwrap(), Released::Released);
        });
    }
}

#[test]
fn a_release_that_was_given_up_is_done_by_the_next_renewal_also_without_space() {
    let extra = ["--quota-backend-bytes", "400000"].map(str::to_owned).into();
    let server = Instance::start(servers::Etcd { extra, ..servers::Etcd::default() }).unwrap();
    let it = Slow::before(&url(&server));
    let (stays, key) = (claim_for(&lock("other"), LONG, true), claim_for(&lock("full"), LONG, true));
    let stays = it.slow.block_on(ask(&it.process, &stays)).unwrap();
    let hold = it.slow.block_on(ask(&it.process, &key)).unwrap();
    it.proxy.keep();
    it.slow.block_on(async { it.left(pin!(it.process.release(&hold))).await });
    it.good.block_on(async {
        fill(&mut raw(&server).await).await;
        assert!(it.process.look(&hold.claim.key).await.unwrap().note().is_some(), "the release was answered");
        assert!(matches!(it.process.renew(&[&stays]).await.pop().unwrap().unwrap(), Standing::Renewed(_)));
        assert!(it.process.look(&hold.claim.key).await.unwrap().note().is_none(), "our lease keeps it for ever");
    });
}
