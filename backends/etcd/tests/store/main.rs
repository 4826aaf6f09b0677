//! The etcd backend against a real etcd: what holds beyond the suite that all backends pass.

mod clock;
mod cluster;
mod combined;
mod combined_faults;
mod faults;
mod fenced;
mod first_contact;
mod forms;
mod late;
mod leases;
mod line;
mod modes;
mod names;
mod near;
mod outage;
mod restored;
mod server;
mod slow;
mod spoilt;
mod strangers;
mod streams;
mod tls;
mod unknown;

use dlock::backends::etcd::Etcd;
use dlock::backends::etcd::client::PutOptions;
use dlock::{Clock, ErrorKind, Key, LockKey};
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::{SITE, token};
use dlock_testkit::servers::{self, Instance};

use self::server::{acquire, ask, claim, line, lock, prefix, process, raw, soon, stand, url};

#[tokio::test]
async fn a_lock_is_taken_refused_seen_and_freed() {
    let (one, other) = (process().await, process().await);
    let key = lock("cycle");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    assert_eq!(one.look(&key).await.unwrap().note().cloned().unwrap().site(), Some(SITE));
    for refused in [&other, &one] {
        let Attempt::Contended(wake) = refused.try_acquire(&claim(&key), Queue::Leave).await.unwrap() else { panic!() };
        assert_eq!(wake.held_by.as_ref(), Some(&hold.claim.note));
        assert_eq!(line(&key).await.len(), 1, "who does not stand in line leaves nothing");
    }
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    assert!(line(&key).await.is_empty());
    assert!(one.look(&key).await.unwrap().note().cloned().is_none());
    let next = ask(&other, &claim(&key)).await.unwrap();
    assert!(token(&next) > token(&hold));
}

/// Each acquisition and each release allocates its future. Half of it is the client library's own future, of 2.2 KB.
#[tokio::test]
async fn the_futures_of_an_acquisition_and_a_release_stay_small() {
    let process = process().await;
    let claim = claim(&lock("small"));
    let acquiring = process.try_acquire(&claim, Queue::Leave);
    let size = size_of_val(&*acquiring);
    assert!(size <= 4608, "{size}");
    let Attempt::Acquired(hold) = acquiring.await.unwrap() else { panic!("the lock is not free") };
    let releasing = process.release(&hold);
    let size = size_of_val(&*releasing);
    assert!(size <= 4096, "{size}");
    assert_eq!(releasing.await.unwrap(), Released::Released);
}

#[tokio::test]
async fn an_owner_that_asks_again_has_the_lock_already_and_its_lease_begins_anew() {
    let process = process().await;
    let key = lock("again");
    let claim = claim(&key);
    let first = ask(&process, &claim).await.unwrap();
    for queue in [Queue::Leave, Queue::until(soon())] {
        let before = Clock::system().now();
        let Attempt::Acquired(again) = process.try_acquire(&claim, queue).await.unwrap() else { panic!("refused") };
        assert_eq!(again.token, first.token);
        assert!(again.validity.from >= before, "the lease was not armed anew");
    }
    assert_eq!(line(&key).await.len(), 1);
}

#[tokio::test]
async fn a_late_release_frees_nobody_elses_lock() {
    let process = process().await;
    let key = lock("late");
    let hold = ask(&process, &claim(&key)).await.unwrap();
    assert_eq!(process.release(&hold).await.unwrap(), Released::Released);
    let next = ask(&process, &claim(&key)).await.unwrap();
    assert_eq!(process.release(&hold).await.unwrap(), Released::NotOwner);
    assert_eq!(process.release(&next).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_renewal_and_a_release_check_the_revision_of_the_key() {
    let process = process().await;
    let key = lock("incarnation");
    let claim = claim(&key);
    let first = ask(&process, &claim).await.unwrap();
    assert_eq!(process.release(&first).await.unwrap(), Released::Released);
    let second = ask(&process, &claim).await.unwrap();
    assert_eq!(process.renew(&[&first]).await.pop().unwrap().unwrap(), Standing::Lost);
    assert_eq!(process.release(&first).await.unwrap(), Released::NotOwner);
    assert_eq!(line(&key).await.len(), 1);
    assert_eq!(process.release(&second).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn names_with_slashes_do_not_lie_within_each_other() {
    let process = process().await;
    let namespace = format!("t{}", fastrand::u64(..));
    for name in ["a/b", "a", "a/", "a0", "a/b/c", "a%2Fb"] {
        let key = LockKey::new(&namespace, Key::text(name)).unwrap();
        assert!(ask(&process, &claim(&key)).await.is_some(), "{name} is not free");
    }
}

#[tokio::test]
async fn a_long_name_is_taken() {
    let process = process().await;
    let key = LockKey::new("t", Key::new().value(&"/".repeat(4000)).value(&fastrand::u64(..))).unwrap();
    let hold = acquire(&process, &claim(&key)).await;
    assert_eq!(process.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_foreign_key_without_a_lease_is_a_conflict_and_not_waited_for() {
    let process = process().await;
    let key = lock("stranger");
    raw().await.put(format!("{}x", prefix(&key)), "hello", None::<PutOptions>).await.unwrap();
    for queue in [Queue::Leave, Queue::until(soon())] {
        let claim = claim(&key);
        let error = process.try_acquire(&claim, queue).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::KeyConflict, "{error}");
        process.abandon(&claim).await.unwrap();
    }
    assert_eq!(line(&key).await.len(), 1);
}

#[tokio::test]
async fn abandon_leaves_no_trace_however_often() {
    let (one, other) = (process().await, process().await);
    let key = lock("abandon");
    let (first, waiter) = (claim(&key), claim(&key));
    other.abandon(&waiter).await.unwrap();
    let hold = acquire(&one, &first).await;
    assert!(stand(&other, &waiter).await.is_err());
    assert_eq!(line(&key).await.len(), 2);
    for _ in 0..2 {
        other.abandon(&waiter).await.unwrap();
        assert_eq!(line(&key).await.len(), 1);
    }
    for _ in 0..2 {
        one.abandon(&first).await.unwrap();
        assert!(line(&key).await.is_empty(), "an abandon frees a hold too");
    }
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
}

/// There a renewal of a few holds would be refused, and the holds would be lost.
#[tokio::test]
async fn a_server_that_takes_fewer_operations_than_a_renewal_needs_is_refused_by_the_name_of_its_option() {
    let extra = ["--max-txn-ops", "4"].map(str::to_owned).into();
    let server = Instance::start(servers::Etcd { extra, ..servers::Etcd::default() }).unwrap();
    let error = Etcd::open(&url(&server), &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "max-txn-ops"), "{error}");
    assert!(error.message().contains("--max-txn-ops=128"), "{error}");
}
