//! Turns, and the callers behind them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;

use dlock_contract::{BootInstant, Claim, Error, HoldId, Key, LockKey};
use futures::FutureExt;

use super::*;

fn key(text: &'static str) -> LockKey {
    LockKey::new("test", Key::text(text)).unwrap()
}

fn request(max: usize) -> TurnRequest {
    let claim = Arc::new(Claim::new(key("k"), Duration::from_secs(30), "site").unwrap());
    TurnRequest {
        claim,
        max_ahead: Some(max),
        sole_thread: None,
        cohort_ttl: None,
        release_asks_until: None,
        won: None,
    }
}

const NOW: BootInstant = BootInstant::from_nanos(0);

fn seconds(seconds: u64) -> BootInstant {
    BootInstant::from_nanos(seconds * 1_000_000_000)
}

/// All calls of a test are made at one time: nobody is overdue.
fn join(queue: &Arc<LocalQueue>, key: &LockKey, request: TurnRequest) -> Joined {
    queue.join(key, request, || NOW)
}

fn behind(queue: &Arc<LocalQueue>, key: &LockKey) -> Waiting {
    match join(queue, key, request(10)) {
        Joined::Behind(waiting) => waiting,
        other => panic!("{other:?}"),
    }
}

fn turn(queue: &Arc<LocalQueue>, key: &LockKey) -> Turn {
    match join(queue, key, request(10)) {
        Joined::Turn(turn) => turn,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_caller_that_does_not_wait_stays_behind_an_unfinished_abandon_and_a_caller_that_asks() {
    let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
    let asks = || join(&queue, &key, TurnRequest { max_ahead: None, ..request(1) });
    let stands_behind = || match asks() {
        Joined::Behind(waiting) => waiting,
        other => panic!("{other:?}"),
    };
    let mut first = turn(&queue, &key);
    let (mut second, third) = (stands_behind(), stands_behind());
    assert!((&mut second).now_or_never().is_none());
    // The store says that another owner holds the lock, or it grants the lock.
    first.note_contended();
    assert!(matches!((&mut second).now_or_never(), Some(Err(KnownState::Contended(None)))));
    drop((second, third));
    assert!(matches!(asks(), Joined::Taken(_)));
    first.begin_sole_hold(None);
    assert!(matches!(asks(), Joined::Taken(_)));
    drop(first);
    let mut first = turn(&queue, &key);
    let mut second = stands_behind();
    first.begin_sole_hold(None);
    drop(first);
    assert!(
        matches!((&mut second).now_or_never(), Some(Err(KnownState::Contended(None)))),
        "it was held when it asked"
    );
    assert_eq!(queue.len(), 0);
    // The store does not answer.
    let first = turn(&queue, &key);
    let mut second = stands_behind();
    first.note_failure(&Error::outage("silent"));
    assert!(matches!((&mut second).now_or_never(), Some(Err(KnownState::Failed(_)))));
    first.leave();
    let mut second = stands_behind();
    drop(first);
    assert!((&mut second).now_or_never().is_some_and(|turn| turn.is_ok()));
    let mut held = turn(&queue, &key);
    held.begin_hold(LocalHold { sole_thread: None, serves: None, is_releasing: false });
    assert!(matches!(asks(), Joined::Taken(_)));
    let stands = turn(&queue, &key);
    stands.leave();
    assert!(matches!(asks(), Joined::Taken(_)), "somebody holds it");
}

/// A caller that sleeps would wait for ever for a release that only its own thread could send.
#[test]
fn the_thread_of_a_hold_is_known_until_the_hold_is_gone() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let sole_thread = runtime.block_on(async { dlock_store::engine::sole_thread() }).unwrap();
    let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
    let mut held = turn(&queue, &key);
    held.begin_hold(LocalHold { sole_thread: Some(sole_thread), serves: None, is_releasing: false });
    assert!(queue.has(&key, sole_thread));
    let Joined::Turn(mut stands) = join(&queue, &key, TurnRequest { sole_thread: Some(sole_thread), ..request(1) })
    else {
        panic!("the hold has left the turn to others")
    };
    stands.join_store_queue();
    drop(held);
    assert!(queue.has(&key, sole_thread));
    drop(stands);
    assert!(!queue.has(&key, sole_thread));
    assert_eq!(queue.len(), 0);
    // A caller that asks for a free lock has neither.
    let Joined::Turn(asks) = join(&queue, &key, TurnRequest { sole_thread: Some(sole_thread), ..request(1) }) else {
        panic!("nobody has it")
    };
    assert!(queue.has(&key, sole_thread));
    drop(asks);
    assert!(!queue.has(&key, sole_thread));
}

#[test]
fn turns_are_given_in_order_and_leave_nothing() {
    let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
    let first = turn(&queue, &key);
    let (mut second, mut third) = (behind(&queue, &key), behind(&queue, &key));
    assert!((&mut second).now_or_never().is_none());
    drop(first);
    assert!((&mut third).now_or_never().is_none());
    let now = (&mut second).now_or_never().unwrap().unwrap();
    assert!((&mut third).now_or_never().is_none());
    drop(now);
    drop((&mut third).now_or_never().unwrap().unwrap());
    assert_eq!(queue.len(), 0);
}

/// The store finds calls that wait for each other's locks, and sees only those that wait there.
#[test]
fn a_caller_that_holds_other_locks_waits_in_the_store_and_behind_no_neighbour() {
    let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
    let inside = |claim: &mut Claim| claim.set_inside(vec![HoldId::of(&claim.owner)]);
    let claim = || Arc::new(Claim::clone(&request(10).claim).with(inside));
    let asks = || match join(&queue, &key, TurnRequest { claim: claim(), ..request(10) }) {
        Joined::Behind(waiting) => waiting,
        other => panic!("{other:?}"),
    };
    let mut first = turn(&queue, &key);
    let mut second = behind(&queue, &key);
    let waker = Arc::new(Woken::default());
    let mut third = asks();
    let polled = Pin::new(&mut third).poll(&mut Context::from_waker(&waker.clone().into()));
    assert!(polled.is_pending(), "nobody knows whether the lock is held");
    first.begin_sole_hold(None);
    assert!(waker.0.load(Ordering::SeqCst), "it was not told that the lock is held");
    let mut third = third.now_or_never().unwrap().unwrap();
    let fourth = asks().now_or_never().unwrap().unwrap();
    assert!((&mut second).now_or_never().is_none(), "a caller without other locks stays behind");
    // One gives up, the other one gets the lock as soon as it is free.
    drop(fourth);
    drop(first);
    third.begin_sole_hold(None);
    let second = second.now_or_never().unwrap().unwrap();
    drop((second, third));
    assert_eq!(queue.len(), 0);
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn other_keys_have_other_turns() {
    let queue = Arc::new(LocalQueue::default());
    let _one = turn(&queue, &key("a"));
    let _other = turn(&queue, &key("b"));
}

#[test]
fn a_turn_given_to_a_dropped_waiter_passes_on() {
    let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
    let first = turn(&queue, &key);
    let (second, mut third) = (behind(&queue, &key), behind(&queue, &key));
    drop(first);
    drop(second);
    assert!((&mut third).now_or_never().is_some());
}

#[test]
fn a_waiter_that_gives_up_leaves_its_place() {
    let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
    let first = turn(&queue, &key);
    drop(behind(&queue, &key));
    drop(first);
    assert_eq!(queue.len(), 0);
}

#[test]
fn the_local_queue_is_bounded() {
    let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
    let _turn = turn(&queue, &key);
    let _waiting = match join(&queue, &key, request(1)) {
        Joined::Behind(waiting) => waiting,
        other => panic!("{other:?}"),
    };
    assert!(matches!(join(&queue, &key, request(1)), Joined::Full));
}

/// Else the table would grow with each key that such a caller has waited for.
#[test]
fn a_waiter_that_was_passed_over_and_is_gone_leaves_no_queue() {
    let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
    let first = turn(&queue, &key);
    let second = behind(&queue, &key);
    drop(first);
    drop(queue.pass_over(&key, seconds(1)));
    drop(queue.pass_over(&key, seconds(4)));
    drop(second);
    assert_eq!(queue.len(), 0);
}

/// A caller with the turn that leaves it to the release of a hold, which asks for the caller. Its claim has never left this process:
/// an abandon of it would come after the attempt that the caller makes next, and free the lock that it has won.
fn asked_for(queue: &Arc<LocalQueue>, key: &LockKey) -> (Turn, Waiting, NextWaiter) {
    let mut first = turn(queue, key);
    first.begin_hold(LocalHold { sole_thread: None, serves: Some(ServedRuntime(None)), is_releasing: false });
    let served = TurnRequest { release_asks_until: Some(BootInstant::NEVER), ..request(10) };
    let Joined::Behind(second) = join(queue, key, served) else { panic!("it asks beside the release") };
    let release = first.begin_release().unwrap();
    (first, second, release)
}

#[test]
fn a_release_that_asks_for_the_next_caller_for_too_long_loses_the_turn_to_that_caller() {
    let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
    let (first, mut second, release) = asked_for(&queue, &key);
    for at in [1, 20] {
        assert!(queue.pass_over(&key, seconds(at)).claims.is_empty());
    }
    let second = (&mut second).now_or_never().expect("it may ask for itself").unwrap();
    assert!(!release.turn.note_answer());
    drop((release, first, second));
    assert_eq!(queue.len(), 0);
}

/// The bound of the request does not hold for the undo of the request.
#[test]
fn a_release_that_undoes_what_it_has_asked_for_keeps_the_turn() {
    let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
    let (first, mut second, release) = asked_for(&queue, &key);
    drop(queue.pass_over(&key, seconds(1)));
    let left = release.turn.left();
    assert!(queue.pass_over(&key, seconds(20)).claims.is_empty());
    assert!((&mut second).now_or_never().is_none());
    drop(left);
    let second = (&mut second).now_or_never().expect("the undo has ended").unwrap();
    drop((first, second));
    assert_eq!(queue.len(), 0);
}
