//! Answers that come late or never: nothing stays in either store.

use dlock_contract::{Backend, Queue, Released};
use dlock_paired::GateDown;
use dlock_testkit::holds::{claim, take};
use dlock_testkit::{Mode, holds};

use crate::kit::{Holder, Kit, TTL, abandon, bounded};

/// The server does what it is asked, and its answer is lost.
const NO_ANSWER: Mode = Mode::Blackhole { to_server: false, to_client: true };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_the_gate_that_nobody_heard_of_is_freed_with_the_lock() {
    let kit = Kit::new().await;
    let pair = kit.pair(GateDown::Authority).await;
    let clock = dlock_store::Clock::system();
    let end = clock.now().after(crate::kit::SOON);
    let (claim, hold) = loop {
        take_and_release(&pair, "late gate warm").await;
        kit.gate.cut(NO_ANSWER);
        let claim = claim("late gate", TTL);
        let hold = take(&pair, &claim).await;
        if kit.gate.holder(&claim).await == Holder::Ours {
            break (claim, hold);
        }
        // The machine was slow before, so the gate is passed over for a while.
        assert!(clock.now() < end, "the gate is not asked");
        kit.gate.mend();
        pair.release(&hold).await.unwrap();
    };
    assert_eq!(kit.authority.holder(&claim).await, Holder::Ours);
    // Still silent: the release does not wait for the gate, and our thread frees it when it answers.
    assert_eq!(bounded(pair.release(&hold)).await.unwrap(), Released::Released);
    assert_eq!(kit.authority.holder(&claim).await, Holder::Nobody);
    kit.gate.mend();
    kit.gate.until(&claim, Holder::Nobody).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_the_authority_that_nobody_heard_of_is_abandoned_in_both() {
    // Redis grants by one request, so the grant is there although no answer comes.
    let kit = Kit::the_other_way_round().await;
    let pair = kit.pair(GateDown::Fail).await;
    take_and_release(&pair, "late authority warm").await;
    kit.authority.cut(NO_ANSWER);
    let claim = claim("late authority", TTL);
    assert!(bounded(pair.try_acquire(&claim, Queue::Leave)).await.is_err());
    kit.authority.until(&claim, Holder::Ours).await;
    kit.authority.mend();
    abandon(&pair, &claim).await;
    kit.authority.until(&claim, Holder::Nobody).await;
    kit.gate.until(&claim, Holder::Nobody).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_is_dropped_between_the_two_stores_leaves_nothing() {
    let kit = Kit::new().await;
    let pair = kit.pair(GateDown::Fail).await;
    take_and_release(&pair, "dropped warm").await;
    // The authority is silent, so the caller is dropped with the gate in its hands.
    kit.authority.cut(Mode::BLACKHOLE);
    let claim = claim("dropped", TTL);
    let attempt = pair.try_acquire(&claim, Queue::Leave);
    let seen = kit.gate.until(&claim, Holder::Ours);
    match futures::future::select(attempt, std::pin::pin!(seen)).await {
        futures::future::Either::Left(_) => panic!("a silent authority answered"),
        futures::future::Either::Right(((), attempt)) => drop(attempt),
    }
    kit.authority.mend();
    abandon(&pair, &claim).await;
    kit.gate.until(&claim, Holder::Nobody).await;
    kit.authority.until(&claim, Holder::Nobody).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_gate_is_passed_over_until_it_is_back() {
    let kit = Kit::new().await;
    let pair = kit.pair(GateDown::Authority).await;
    take_and_release(&pair, "silent gate warm").await;
    kit.gate.cut(Mode::BLACKHOLE);
    take_and_release(&pair, "silent gate first").await;
    kit.gate.mend();
    let clock = dlock_store::Clock::system();
    let end = clock.now().after(crate::kit::SOON);
    for call in 0.. {
        let claim = holds::claim(&format!("gate is back {call}"), TTL);
        let hold = take(&pair, &claim).await;
        let is_back = kit.gate.holder(&claim).await == Holder::Ours;
        pair.release(&hold).await.unwrap();
        if is_back {
            break;
        }
        assert!(clock.now() < end, "a gate that is back is still passed over");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn take_and_release(pair: &dlock_paired::Paired, name: &str) {
    let hold = take(pair, &holds::claim(name, TTL)).await;
    assert_eq!(pair.release(&hold).await.unwrap(), Released::Released);
}
