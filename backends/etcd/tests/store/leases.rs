//! Leases: shared by holds, kept alive, lost together, and a separate one for a hold that is not renewed.

use std::time::Duration;

use dlock::backends::etcd::client::GetOptions;
use dlock::{Clock, ErrorKind, Key, LockKey, Mode, Registry, Wait};
use dlock_contract::{Backend, Hold, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm};
use dlock_testkit::wait_until;

use crate::server::{TTL, acquire, ask, claim, claim_for, held, line, lock, own, process, raw, shared, soon, url};

async fn revoke(hold: &Hold) {
    raw().await.lease_client().revoke(hold.group().unwrap() as i64).await.unwrap();
}

#[tokio::test]
async fn holds_share_a_lease_and_leave_it_to_each_other() {
    let process = process().await;
    let (left, right) = (lock("left"), lock("right"));
    let (one, two) = (ask(&process, &claim(&left)).await.unwrap(), ask(&process, &claim(&right)).await.unwrap());
    assert_eq!(one.group(), two.group());
    let before = Clock::system().now();
    for standing in process.renew(&[&one, &two]).await {
        assert!(
            matches!(standing.unwrap(), Standing::Renewed(validity) if validity.from >= before && validity.granted == TTL)
        );
    }
    assert_eq!(process.release(&one).await.unwrap(), Released::Released);
    let abandoned = claim(&left);
    let _again = ask(&process, &abandoned).await.unwrap();
    process.abandon(&abandoned).await.unwrap();
    assert!(matches!(confirm(&process, &two).await, Standing::Renewed(_)));
    assert_eq!(line(&right).await.len(), 1);
    // Another ttl is another lease.
    let three = ask(&process, &claim_for(&left, TTL * 2, true)).await.unwrap();
    assert_ne!(three.group(), two.group());
    assert_eq!(three.validity.granted, TTL * 2);
}

#[tokio::test]
async fn a_hold_counts_from_the_leases_last_confirmation() {
    let (process, ttl) = (process().await, Duration::from_secs(15));
    let ask = async |name| ask(&process, &claim_for(&lock(name), ttl, true)).await.unwrap();
    let first = ask("first").await;
    // A lease is kept alive first once a third of its time has passed, so time must pass here.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let early = ask("early").await;
    assert_eq!(early.validity, first.validity, "nobody has confirmed the lease since");
    tokio::time::sleep(ttl / 3).await;
    let before = Clock::system().now();
    let late = ask("late").await;
    assert_eq!(late.group(), first.group());
    assert!(late.validity.from >= before, "a stale lease was not kept alive first");
}

#[tokio::test]
async fn a_lease_that_was_revoked_is_lost_for_all_and_followed_by_a_new_one() {
    let process = process().await;
    let (left, right) = (lock("left"), lock("right"));
    let (one, two) = (ask(&process, &claim(&left)).await.unwrap(), ask(&process, &claim(&right)).await.unwrap());
    revoke(&one).await;
    let answers = process.renew(&[&one, &two]).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap() == Standing::Lost));
    assert!(line(&left).await.is_empty(), "a renewal must not create");
    assert_eq!(process.release(&one).await.unwrap(), Released::NotOwner);
    let next = ask(&process, &claim(&left)).await.unwrap();
    assert_ne!(next.group(), one.group());
    // And if only an attempt notices.
    revoke(&next).await;
    let third = ask(&process, &claim(&left)).await.unwrap();
    assert_ne!(third.group(), next.group());
    assert!(matches!(confirm(&process, &third).await, Standing::Renewed(_)));
}

#[tokio::test]
async fn a_waiter_whose_lease_was_revoked_joins_the_queue_again_with_a_new_lease() {
    let (one, other) = (process().await, process().await);
    let key = lock("waiter");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let waiter = claim(&key);
    assert!(crate::server::stand(&other, &waiter).await.is_err());
    let mine = line(&key).await.pop().unwrap();
    let lease = raw().await.get(mine.as_str(), None).await.unwrap().kvs()[0].lease();
    raw().await.lease_client().revoke(lease).await.unwrap();
    assert!(crate::server::stand(&other, &waiter).await.is_err());
    assert_ne!(line(&key).await.pop().unwrap(), mine);
    one.release(&hold).await.unwrap();
    let next = acquire(&other, &waiter).await;
    assert!(matches!(confirm(&other, &next).await, Standing::Renewed(_)));
}

#[tokio::test]
async fn an_operator_who_deletes_a_key_ends_that_hold_alone() {
    let process = process().await;
    let (left, right) = (lock("left"), lock("right"));
    let (one, two) = (ask(&process, &claim(&left)).await.unwrap(), ask(&process, &claim(&right)).await.unwrap());
    raw().await.delete(line(&left).await.pop().unwrap(), None).await.unwrap();
    let answers: Vec<_> = process.renew(&[&one, &two]).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers[0], Standing::Lost);
    assert!(matches!(answers[1], Standing::Renewed(_)));
    assert!(line(&left).await.is_empty());
}

#[tokio::test]
async fn many_holds_are_renewed_in_their_order() {
    let process = process().await;
    let keys: Vec<_> = (0..150).map(|_| lock("many")).collect();
    let mut holds = Vec::new();
    for key in &keys {
        holds.push(ask(&process, &claim(key)).await.unwrap());
    }
    raw().await.delete(line(&keys[77]).await.pop().unwrap(), None).await.unwrap();
    let answers = process.renew(&holds.iter().collect::<Vec<_>>()).await;
    let lost: Vec<_> = (0..150).filter(|index| *answers[*index].as_ref().unwrap() == Standing::Lost).collect();
    assert_eq!(lost, [77]);
}

#[tokio::test]
async fn a_hold_that_is_not_renewed_has_a_lease_of_its_own_and_ends_with_it() {
    let process = process().await;
    let (shared, alone) = (lock("shared"), lock("alone"));
    let ttl = Duration::from_secs(3);
    let hold = ask(&process, &claim_for(&shared, ttl, true)).await.unwrap();
    let single = ask(&process, &claim_for(&alone, ttl, false)).await.unwrap();
    assert_ne!(hold.group(), single.group());
    // Otherwise renewing others would keep it alive for ever.
    let is_over = async || {
        tokio::time::sleep(ttl / 10).await;
        assert!(matches!(confirm(&process, &hold).await, Standing::Renewed(_)));
        line(&alone).await.is_empty()
    };
    wait_until("the lease of the hold that is not renewed ends", is_over).await.unwrap();
    assert_eq!(confirm(&process, &single).await, Standing::Lost);
    assert_eq!(process.release(&single).await.unwrap(), Released::NotOwner);
    assert_eq!(line(&shared).await.len(), 1);
}

#[tokio::test]
async fn an_unrenewed_hold_leaves_no_trace_of_its_lease() {
    let server = own();
    let process = dlock::backends::etcd::Etcd::open(&url(&server), &Clock::system()).await.unwrap();
    let mut raw = dlock::backends::etcd::client::Client::connect([server.addr().to_string()], None).await.unwrap();
    let count = async |raw: &mut dlock::backends::etcd::client::Client| {
        // But for that of the note of the form.
        raw.lease_client().leases().await.unwrap().leases().len() - 1
    };
    assert_eq!(count(&mut raw).await, 0, "the probe stayed");
    for mode in [Mode::Exclusive, Mode::Write, Mode::permits(1)] {
        let key = lock("trace");
        let unrenewed = || claim_on(&key, TTL, |claim| (claim.renewed, claim.mode) = (false, mode));
        let (mine, refused, waiting) = (unrenewed(), unrenewed(), unrenewed());
        let hold = ask(&process, &mine).await.unwrap();
        assert!(ask(&process, &refused).await.is_none());
        assert_eq!(count(&mut raw).await, 1, "a refused attempt left its lease: {mode:?}");
        assert!(held(process.try_acquire(&waiting, dlock_contract::Queue::until(soon())).await.unwrap()).is_none());
        assert_eq!(count(&mut raw).await, 2, "{mode:?}");
        // Its key is in the queue. One that does not wait any more leaves.
        assert!(ask(&process, &waiting).await.is_none());
        assert_eq!(count(&mut raw).await, 1, "an attempt that left the queue left its lease: {mode:?}");
        assert!(held(process.try_acquire(&waiting, dlock_contract::Queue::until(soon())).await.unwrap()).is_none());
        process.abandon(&waiting).await.unwrap();
        process.abandon(&waiting).await.unwrap();
        process.release(&hold).await.unwrap();
        assert_eq!(count(&mut raw).await, 0, "{mode:?}");
    }
    let all = raw.get("", Some(GetOptions::new().with_all_keys())).await.unwrap();
    let keys: Vec<_> = all.kvs().iter().map(|entry| entry.key_str().unwrap()).collect();
    assert_eq!(keys, ["dl1-epoch/form/own"]);
}

#[tokio::test]
async fn a_waiter_with_a_lease_of_its_own_gets_the_whole_ttl() {
    let (one, other) = (process().await, process().await);
    let key = lock("whole");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let waiter = claim_for(&key, Duration::from_secs(2), false);
    let freeing = async {
        // Longer than its ttl: by then a lease that ran while it waited would be over.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let freed = Clock::system().now();
        one.release(&hold).await.unwrap();
        freed
    };
    let (next, freed) = tokio::join!(acquire(&other, &waiter), freeing);
    // The request that found it free left about then, and may have overtaken the release. One that had waited left 2.5 s before.
    assert!(next.validity.from.after(Duration::from_secs(1)) >= freed, "it ran while it waited");
}

#[tokio::test]
async fn closing_the_store_ends_its_leases() {
    let process = process().await;
    let key = lock("close");
    let hold = ask(&process, &claim(&key)).await.unwrap();
    process.close().await;
    assert!(line(&key).await.is_empty());
    let left = raw().await.lease_client().time_to_live(hold.group().unwrap() as i64, None).await.unwrap();
    assert_eq!(left.ttl(), -1);
}

/// The server keeps every name until it is compacted, and walks over all of them when it reads a lock's keys.
#[tokio::test]
async fn acquisitions_use_the_same_name_again() {
    let process = process().await;
    let key = lock("names");
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..10 {
        let hold = ask(&process, &claim(&key)).await.unwrap();
        names.extend(line(&key).await);
        process.release(&hold).await.unwrap();
    }
    // A hold that is still in scope keeps its name for itself.
    assert!(names.len() <= 2, "{names:?}");
}

/// As a leader does that stood still for longer than the ttl, although the holder renews the lease at the next leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_a_server_ends_is_told_to_all_its_holders_at_once() {
    let (registry, namespace) = (Registry::new(), format!("t{}", fastrand::u64(..)));
    registry.configure(|defaults| defaults.namespace.clone_from(&namespace)).unwrap();
    registry.connect("etcd", &shared()).await.unwrap();
    registry.set_default("etcd").unwrap();
    // Their next renewals are minutes away.
    let take = async |name| registry.lock(name).ttl(TTL * 100).acquire().await.unwrap();
    let guards = [take("first").await, take("second").await, take("third").await];
    let [first, second, third] = guards;
    let key = line(&LockKey::new(&namespace, Key::text("second")).unwrap()).await.pop().unwrap();
    let lease = raw().await.get(key, None).await.unwrap().kvs()[0].lease();
    // The watch goes on without the hold with which it began.
    first.release().await.unwrap();
    raw().await.lease_client().revoke(lease).await.unwrap();
    for guard in [second, third] {
        tokio::time::timeout(TTL, guard.lost()).await.expect("a holder believes in a lock that nobody has");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_whose_first_lock_ended_while_it_waited_for_the_second_is_not_begun() {
    let (registry, namespace) = (Registry::new(), format!("t{}", fastrand::u64(..)));
    registry.configure(|defaults| defaults.namespace.clone_from(&namespace)).unwrap();
    registry.connect("etcd", &shared()).await.unwrap();
    registry.set_default("etcd").unwrap();
    let key = |name: &'static str| LockKey::new(&namespace, Key::text(name)).unwrap();
    let holder = process().await;
    let second = ask(&holder, &claim(&key("b"))).await.unwrap();
    let waits = Wait::UpTo(TTL * 10);
    let list = registry.lock_all(["a", "b"].map(Key::text)).ttl(TTL * 100).wait(waits).acquire();
    let list = tokio::spawn(list);
    wait_until("the list to wait", async || line(&key("b")).await.len() == 2).await.unwrap();
    // The first lock alone ends, and no watch tells that.
    raw().await.delete(line(&key("a")).await.pop().unwrap(), None).await.unwrap();
    holder.release(&second).await.unwrap();
    let error = list.await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error}");
    wait_until("the second lock to be free", async || line(&key("b")).await.is_empty()).await.unwrap();
}
