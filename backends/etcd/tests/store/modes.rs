//! Readers, writers and permits: what holds beyond the suite, beside other tools' keys and after an operator's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dlock::backends::etcd::Etcd;
use dlock::{ErrorKind, LockKey, Mode};
use dlock_contract::{Attempt, Backend, Batch, Claim, Keeps, Queue, Released, Signal, Standing, Together};
use dlock_testkit::holds::{claim_on, token};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::names::EPOCHS;
use crate::server::{LONG, NEWS, TTL, acquire, ask, claim, is_quiet, line, lock, process, raw, soon, stand};
use crate::strangers::stand_as_go;

fn claim_as(key: &LockKey, mode: Mode) -> Arc<Claim> {
    claim_on(key, TTL, |claim| claim.mode = mode)
}

#[tokio::test]
async fn another_tool_waits_behind_readers_and_then_keeps_readers_out() {
    let process = process().await;
    let key = lock("readers");
    let readers = [
        ask(&process, &claim_as(&key, Mode::Read)).await.unwrap(),
        ask(&process, &claim_as(&key, Mode::Read)).await.unwrap(),
    ];
    // It holds the lock when no key of the queue is older.
    let (lease, own) = stand_as_go(&key, "").await;
    assert_eq!(line(&key).await.iter().position(|key| key.as_bytes() == own), Some(2));
    for mode in [Mode::Read, Mode::Write] {
        for queue in [Queue::Leave, Queue::until(soon())] {
            let error = process.try_acquire(&claim_as(&key, mode), queue).await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::KeyConflict, "{error}");
        }
    }
    assert_eq!(line(&key).await.len(), 3, "a refused claim left something");
    for reader in &readers {
        assert!(matches!(process.renew(&[reader]).await.pop().unwrap().unwrap(), Standing::Renewed(_)));
        assert_eq!(process.release(reader).await.unwrap(), Released::Released);
    }
    raw().await.lease_revoke(lease).await.unwrap();
    assert!(ask(&process, &claim_as(&key, Mode::Write)).await.is_some());
}

#[tokio::test]
async fn readers_that_wait_behind_a_writer_come_in_together() {
    let (one, other) = (process().await, process().await);
    let key = lock("together");
    let writer = ask(&one, &claim_as(&key, Mode::Write)).await.unwrap();
    let waiters = [claim_as(&key, Mode::Read), claim_as(&key, Mode::Read)];
    let mut signals = Vec::new();
    for waiter in &waiters {
        signals.push(stand(&other, waiter).await.unwrap_err().signal.unwrap());
    }
    // Neither waits for the other: both watch the writer.
    one.release(&writer).await.unwrap();
    for (waiter, signal) in waiters.iter().zip(signals) {
        timeout(NEWS, signal).await.expect("no news").unwrap();
        assert!(stand(&other, waiter).await.is_ok());
    }
}

/// An abandon of this process changes the epoch. So the server refuses the attempt, and tells what it found.
#[tokio::test]
async fn a_reader_whose_epoch_has_changed_is_not_refused_by_another_reader() {
    let (process, key) = (process().await, lock("epoch"));
    let (first, second) = (claim_as(&key, Mode::Read), claim_as(&key, Mode::Read));
    let hold = ask(&process, &first).await.unwrap();
    let epoch = format!("{EPOCHS}{:016x}/{:02x}", hold.group().unwrap(), second.owner.as_bytes()[0]);
    raw().await.put(epoch.as_str(), "", None).await.unwrap();
    let beside = ask(&process, &second).await.expect("another reader was in the way");
    for hold in [&hold, &beside] {
        assert_eq!(process.release(hold).await.unwrap(), Released::Released);
    }
    raw().await.delete(epoch.as_str(), None).await.unwrap();
}

#[tokio::test]
async fn a_waiter_for_a_permit_is_woken_by_a_holder_and_not_by_a_younger_waiter() {
    let (one, other) = (process().await, process().await);
    let key = lock("permits");
    let two = Mode::permits(2);
    let first = ask(&one, &claim_as(&key, two)).await.unwrap();
    let second = ask(&one, &claim_as(&key, two)).await.unwrap();
    let (waiter, younger) = (claim_as(&key, two), claim_as(&key, two));
    let mut signal = stand(&other, &waiter).await.unwrap_err().signal.unwrap();
    let mut behind = stand(&one, &younger).await.unwrap_err().signal.unwrap();
    assert!(is_quiet(&mut signal).await && is_quiet(&mut behind).await);
    one.abandon(&younger).await.unwrap();
    assert!(is_quiet(&mut signal).await, "woken by a younger waiter that left");
    let mut behind = stand(&one, &younger).await.unwrap_err().signal.unwrap();
    assert!(is_quiet(&mut behind).await);
    // The second one, which is not the next older key of either.
    one.release(&second).await.unwrap();
    let news = timeout(NEWS, signal).await.expect("no news").unwrap();
    let Signal::Granted(next) = news else { panic!("there is room, and it has to ask") };
    assert_eq!((next.slot, first.slot), (second.slot, Some(0)));
    assert!(is_quiet(&mut behind).await, "two must leave before this one");
    one.release(&first).await.unwrap();
    timeout(NEWS, behind).await.expect("no news").unwrap();
    assert_eq!(stand(&one, &younger).await.unwrap().slot, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_that_are_asked_for_at_once_have_different_slots() {
    const PERMITS: u32 = 12;
    let key = lock("at once");
    let processes = [Arc::new(process().await), Arc::new(process().await), Arc::new(process().await)];
    let mut tasks = JoinSet::new();
    for number in 0..PERMITS {
        let (process, claim) = (processes[number as usize % 3].clone(), claim_as(&key, Mode::permits(PERMITS)));
        tasks.spawn(async move { ask(&process, &claim).await.expect("there are enough") });
    }
    let holds = tasks.join_all().await;
    let slots: BTreeSet<_> = holds.iter().map(|hold| hold.slot.unwrap()).collect();
    assert!(slots.into_iter().eq(0..PERMITS), "{holds:?}");
    assert!(ask(&processes[0], &claim_as(&key, Mode::permits(PERMITS))).await.is_none());
    for hold in &holds {
        assert_eq!(processes[1].release(hold).await.unwrap(), Released::Released);
    }
    assert!(line(&key).await.is_empty());
}

#[tokio::test]
async fn an_operator_who_deletes_the_key_of_a_permit_frees_its_slot() {
    let (one, other) = (process().await, process().await);
    let key = lock("slot");
    let two = Mode::permits(2);
    let first = ask(&one, &claim_as(&key, two)).await.unwrap();
    let second = ask(&one, &claim_as(&key, two)).await.unwrap();
    let keys = line(&key).await;
    raw().await.delete(keys[0].as_str(), None).await.unwrap();
    // The mark of its slot is still there.
    let next = ask(&other, &claim_as(&key, two)).await.unwrap();
    assert_eq!((next.slot, second.slot), (Some(0), Some(1)));
    assert_eq!(one.renew(&[&first]).await.pop().unwrap().unwrap(), Standing::Lost);
    assert_eq!(one.release(&first).await.unwrap(), Released::NotOwner);
    let told = other.look(&key).await.unwrap();
    assert_eq!(told.holders.iter().map(|holder| holder.slot).collect::<Vec<_>>(), [Some(1), Some(0)]);
    for hold in [&second, &next] {
        assert_eq!(other.release(hold).await.unwrap(), Released::Released);
    }
    assert!(line(&key).await.is_empty());
}

#[tokio::test]
async fn attempts_of_all_modes_dropped_anywhere_leave_nothing() {
    let process = Arc::new(process().await);
    for mode in [Mode::Read, Mode::Write, Mode::permits(2)] {
        let (key, claim_as) = (lock("dropped"), |key: &_, mode| claim_on(key, LONG, |claim| claim.mode = mode));
        let held = ask(&process, &claim_as(&key, mode)).await.unwrap();
        for round in 0..60 {
            let claim = claim_as(&key, mode);
            let point = Duration::from_micros(fastrand::u64(..3000));
            let queue = if round % 2 == 0 { Queue::Leave } else { Queue::until(soon()) };
            let _ = timeout(point, process.try_acquire(&claim, queue)).await;
            process.abandon(&claim).await.unwrap();
        }
        assert_eq!(process.release(&held).await.unwrap(), Released::Released);
        assert!(line(&key).await.is_empty(), "{mode:?}: {:?}", line(&key).await);
    }
}

async fn lease_of(key: &str) -> i64 {
    raw().await.get(key, None).await.unwrap().kvs()[0].lease()
}

#[tokio::test]
async fn a_kept_key_has_a_lease_of_its_own_and_keeps_its_place() {
    let (one, other) = (process().await, process().await);
    let key = lock("kept");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let waiter = claim(&key);
    let mut signal = stand(&other, &waiter).await.unwrap_err().signal.unwrap();
    let first = line(&key).await.remove(0);
    let shared = lease_of(&first).await;
    assert_eq!(one.keep(&hold, Duration::from_millis(2100), None).await.unwrap(), Released::Released);
    assert_eq!(line(&key).await[0], first, "the waiter would be first");
    let own = lease_of(&first).await;
    assert_ne!(own, shared);
    let granted = raw().await.lease_client().time_to_live(own, None).await.unwrap().granted_ttl();
    assert_eq!(granted, 3, "whole seconds, and never too short");
    assert!(one.look(&key).await.unwrap().holders[0].id.is_none());
    assert!(is_quiet(&mut signal).await);
    let next = acquire(&other, &waiter).await;
    assert!(token(&next) > token(&hold));
}

#[tokio::test]
async fn more_locks_than_a_transaction_may_name_are_asked_for_one_by_one() {
    let process = process().await;
    let ask_for = async |count: usize| {
        let claims: Vec<_> = (0..count).map(|_| claim(&lock("many"))).collect();
        let together = process.try_acquire_all(&claims).await.unwrap();
        for claim in &claims {
            process.abandon(claim).await.unwrap();
        }
        together
    };
    assert!(matches!(ask_for(42).await, Together::Acquired(holds) if holds.len() == 42));
    // Refused: the reads of that are the most that one transaction has.
    let taken = lock("taken");
    let _held = ask(&process, &claim(&taken)).await.unwrap();
    let mut claims: Vec<_> = (0..41).map(|_| claim(&lock("many"))).collect();
    claims.push(claim(&taken));
    assert!(matches!(process.try_acquire_all(&claims).await.unwrap(), Together::Contended));
    assert!(line(&claims[0].key).await.is_empty());
    assert!(matches!(ask_for(43).await, Together::OneByOne));
}

#[tokio::test]
async fn locks_that_are_asked_for_together_respect_other_modes() {
    let process: Etcd = process().await;
    let (free, read) = (lock("free"), lock("read"));
    let _reader = ask(&process, &claim_as(&read, Mode::Read)).await.unwrap();
    let error = process.try_acquire_all(&[claim(&free), claim(&read)]).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::KeyConflict, "{error}");
    assert!(line(&free).await.is_empty());
    assert!(matches!(process.try_acquire(&claim(&free), Queue::Leave).await.unwrap(), Attempt::Acquired(_)));
}
