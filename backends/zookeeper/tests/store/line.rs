//! One lock after another: grants, refusals, waiting, and the nodes that they make.

use std::time::Duration;

use dlock::{ErrorKind, Mode};
use dlock_contract::{Attempt, Backend, Exchange, Queue, Released, Signal, Standing};
use dlock_testkit::holds::{SITE, claim_on, confirm, stand, take, token, until};
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::wait_until;

use crate::kit::{TTL, claim, granted, line, lock, long_claim, opened, path, process, raw, shared};

#[tokio::test]
async fn a_lock_is_a_node_of_curators_form_and_its_transaction_is_the_token() {
    let (one, other, raw) = (process().await, process().await, raw(&shared()).await);
    let key = lock("cycle/one");
    let place = path(&one, &key);
    let namespace = key.as_str().split(':').nth(1).unwrap();
    assert!(place.starts_with(&format!("/dlock/{namespace}/")) && place.ends_with("/cycle%2Fone"), "{place}");
    let hold = take(&one, &claim(&key)).await;
    let nodes = line(&raw, &place).await;
    assert!(nodes.len() == 1 && nodes[0].starts_with("_c_") && nodes[0].ends_with("-lock-0000000000"), "{nodes:?}");
    let stat = raw.check_stat(&format!("{place}/{}", nodes[0])).await.unwrap().unwrap();
    assert_eq!(u64::try_from(stat.czxid).unwrap(), token(&hold));
    assert_eq!(one.look(&key).await.unwrap().note().cloned().unwrap().site(), Some(SITE));
    let Attempt::Contended(wake) = other.try_acquire(&claim(&key), Queue::Leave).await.unwrap() else { panic!() };
    assert_eq!(wake.held_by.as_ref(), Some(&hold.claim.note));
    assert_eq!(line(&raw, &place).await.len(), 1, "who does not stand in line leaves nothing");
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    assert!(line(&raw, &place).await.is_empty());
}

#[tokio::test]
async fn the_server_removes_the_nodes_of_a_free_lock_but_kazoos() {
    let java = vec!["-Dznode.container.checkIntervalMs=100".into()];
    let server = Instance::start(servers::ZooKeeper { java, ..servers::ZooKeeper::default() }).unwrap();
    let raw = raw(&server.url()).await;
    let key = lock("free");
    let use_once = async |url: String| {
        let one = opened(&url).await;
        let hold = take(&one, &claim(&key)).await;
        one.release(&hold).await.unwrap();
        path(&one, &key)
    };
    let kept = use_once(format!("{}/kept?layout=kazoo", server.url())).await;
    let free = use_once(server.url()).await;
    wait_until("the end of the lock's node", async || raw.check_stat(&free).await.unwrap().is_none()).await.unwrap();
    assert!(raw.check_stat(&kept).await.unwrap().is_some(), "kazoo makes sure of its path once");
}

#[tokio::test]
async fn the_end_of_a_waiter_ahead_lets_nobody_in() {
    let (one, dead, last) = (process().await, process().await, process().await);
    let raw = raw(&shared()).await;
    let key = lock("waiter");
    let hold = take(&one, &claim(&key)).await;
    let ahead = claim(&key);
    let _standing = stand(&dead, &ahead).await;
    let waiter = claim(&key);
    let mut wake = stand(&last, &waiter).await;
    let nodes = line(&raw, &path(&one, &key)).await;
    assert_eq!(nodes.len(), 3);
    // The waiter's node goes, as when its process was killed; the holder lives.
    raw.delete(&format!("{}/{}", path(&one, &key), nodes[1]), None).await.unwrap();
    let state = || async { last.look(&key).await.unwrap() };
    while state().await.waiters != Some(1) {
        tokio::task::yield_now().await;
    }
    // The last waiter has read the line again, and stands behind the holder.
    let signal = wake.signal.as_mut().unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(300), signal.as_mut()).await.is_err(),
        "a waiter came in behind a living holder"
    );
    one.release(&hold).await.unwrap();
    let Signal::Granted(next) = signal.await.unwrap() else { panic!("no grant") };
    assert!(token(&next) > token(&hold));
    last.release(&next).await.unwrap();
}

#[tokio::test]
async fn a_release_for_the_next_caller_costs_it_its_place_in_line() {
    let (one, other) = (process().await, process().await);
    let key = lock("next");
    let first = take(&one, &claim(&key)).await;
    let between = claim(&key);
    let mut standing = stand(&other, &between).await;
    let next = claim(&key);
    let soon = dlock::Clock::system().now().after(TTL);
    let (released, answer) = one.release_to(&first, &next, soon).await.unwrap();
    assert_eq!(released, Released::Released);
    let Some(Attempt::Contended(mut wake)) = answer else { panic!("it overtook a waiter") };
    let second = granted(&other, &between, &mut standing).await;
    other.release(&second).await.unwrap();
    let third = granted(&one, &next, &mut wake).await;
    assert!(token(&first) < token(&second) && token(&second) < token(&third));
    one.release(&third).await.unwrap();
}

#[tokio::test]
async fn a_renewal_and_a_release_are_of_the_node_that_was_granted() {
    let (one, raw) = (process().await, raw(&shared()).await);
    let key = lock("incarnation");
    let claim = claim(&key);
    let first = take(&one, &claim).await;
    for node in line(&raw, &path(&one, &key)).await {
        raw.delete(&format!("{}/{node}", path(&one, &key)), None).await.unwrap();
    }
    let second = take(&one, &claim).await;
    assert!(token(&second) > token(&first));
    assert_eq!(confirm(&one, &first).await, Standing::Lost);
    assert_eq!(one.release(&first).await.unwrap(), Released::NotOwner);
    assert!(matches!(confirm(&one, &second).await, Standing::Renewed(_)));
    assert_eq!(one.release(&second).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_writer_that_waited_has_a_higher_token_than_the_readers_before_it() {
    let (one, other) = (process().await, process().await);
    let key = lock("modes");
    let of = |mode| claim_on(&key, TTL, |claim| claim.mode = mode);
    let writer = take(&one, &of(Mode::Write)).await;
    // Both stand behind it, the writer first; the reader is let in after that writer.
    let (next_writer, reader) = (of(Mode::Write), of(Mode::Read));
    let mut writes = stand(&other, &next_writer).await;
    let mut reads = stand(&one, &reader).await;
    one.release(&writer).await.unwrap();
    let second = granted(&other, &next_writer, &mut writes).await;
    other.release(&second).await.unwrap();
    let third = granted(&one, &reader, &mut reads).await;
    assert!(token(&writer) < token(&second) && token(&second) < token(&third));
    let error = one.try_acquire(&claim(&key), until()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::KeyConflict);
    one.release(&third).await.unwrap();
}

#[tokio::test]
async fn the_number_of_a_permit_goes_with_its_place() {
    let (one, raw) = (process().await, raw(&shared()).await);
    let key = lock("permits");
    let of = || claim_on(&key, TTL, |claim| claim.mode = Mode::permits(2));
    let (first, second) = (take(&one, &of()).await, take(&one, &of()).await);
    let waiter = of();
    let mut wake = stand(&one, &waiter).await;
    assert_eq!((first.slot, second.slot), (Some(0), Some(1)));
    // An operator deletes the place of the first, and not its number.
    let place = path(&one, &key);
    raw.delete(
        &format!("{place}/{}", line(&raw, &place).await.iter().find(|name| name.contains("permit")).unwrap()),
        None,
    )
    .await
    .unwrap();
    assert_eq!(confirm(&one, &first).await, Standing::Lost);
    let third = match wake.signal.as_mut().unwrap().await.unwrap() {
        Signal::Granted(hold) => hold,
        // The number was still taken when it looked.
        Signal::Ask => match one.try_acquire(&waiter, until()).await.unwrap() {
            Attempt::Acquired(hold) => hold,
            other => panic!("{other:?}"),
        },
    };
    assert_eq!(third.slot, Some(0));
    for hold in [second, third] {
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    }
    assert!(line(&raw, &place).await.is_empty());
}

/// Otherwise its callers would fail, one after the other, for as long as the holder does not renew.
#[tokio::test]
async fn a_waiter_waits_for_a_number_that_is_left_without_its_place() {
    let (one, other, raw) = (process().await, process().await, raw(&shared()).await);
    let key = lock("left number");
    let of = || claim_on(&key, TTL, |claim| claim.mode = Mode::permits(1));
    let first = take(&one, &of()).await;
    let place = path(&one, &key);
    let names = line(&raw, &place).await;
    raw.delete(&format!("{place}/{}", names.iter().find(|name| name.contains("permit")).unwrap()), None).await.unwrap();
    let refused = other.try_acquire(&of(), Queue::Leave).await.unwrap();
    assert!(matches!(refused, Attempt::Contended(_)), "{refused:?}");
    let waiter = of();
    let mut wake = stand(&other, &waiter).await;
    assert_eq!(confirm(&one, &first).await, Standing::Lost);
    let next = granted(&other, &waiter, &mut wake).await;
    assert_eq!(next.slot, Some(0));
    assert_eq!(other.release(&next).await.unwrap(), Released::Released);
    assert!(line(&raw, &place).await.is_empty());
}

#[tokio::test]
async fn a_broken_holder_does_not_take_its_number_from_the_next_one() {
    let (one, other, raw) = (process().await, process().await, raw(&shared()).await);
    let key = lock("number");
    let of = || claim_on(&key, TTL, |claim| claim.mode = Mode::permits(1));
    let first = take(&one, &of()).await;
    // An operator deletes both nodes, as the documentation says it.
    let place = path(&one, &key);
    for name in line(&raw, &place).await {
        raw.delete(&format!("{place}/{name}"), None).await.unwrap();
    }
    let second = take(&other, &of()).await;
    assert_eq!((first.slot, second.slot), (Some(0), Some(0)));
    assert_eq!(confirm(&one, &first).await, Standing::Lost);
    assert!(matches!(confirm(&other, &second).await, Standing::Renewed(_)), "the first one has freed the second one's");
    assert_eq!(other.release(&second).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_number_that_an_operator_deleted_is_its_next_holders_alone() {
    let (one, other, raw) = (process().await, process().await, raw(&shared()).await);
    let key = lock("deleted number");
    let of = || claim_on(&key, TTL, |claim| claim.mode = Mode::permits(3));
    let lost = [take(&one, &of()).await, take(&one, &of()).await];
    let place = path(&one, &key);
    raw.delete(&format!("{place}/slot-0"), None).await.unwrap();
    raw.delete(&format!("{place}/slot-1"), None).await.unwrap();
    let next = take(&other, &of()).await;
    assert_eq!((lost[0].slot, next.slot), (Some(0), Some(0)));
    assert!(token(&next) > token(&lost[1]));
    // By its release, and by its renewal.
    assert_eq!(one.release(&lost[0]).await.unwrap(), Released::NotOwner);
    assert_eq!(confirm(&one, &lost[1]).await, Standing::Lost);
    assert_eq!(line(&raw, &place).await.len(), 2, "a place is left, or the next holder's number has gone");
    assert!(matches!(confirm(&other, &next).await, Standing::Renewed(_)));
    let again = take(&one, &of()).await;
    assert_eq!(again.slot, Some(1));
    // A renewal of one whose number is another's by now.
    raw.delete(&format!("{place}/slot-1"), None).await.unwrap();
    let second = take(&other, &of()).await;
    assert_eq!(second.slot, Some(1));
    assert_eq!(confirm(&one, &again).await, Standing::Lost);
    for hold in [next, second] {
        assert_eq!(other.release(&hold).await.unwrap(), Released::Released);
    }
    assert!(line(&raw, &place).await.is_empty());
}

#[tokio::test]
async fn an_abandon_finds_a_request_that_waited_for_an_earlier_one_of_its_claim() {
    let (one, other, raw) = (process().await, process().await, raw(&shared()).await);
    let key = lock("two");
    let hold = take(&one, &long_claim(&key)).await;
    let asked = long_claim(&key);
    // The caller has given the first one up, and asks again before it has ended.
    let (mut first, mut second) = (other.try_acquire(&asked, Queue::Leave), other.try_acquire(&asked, until()));
    assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
    assert!(matches!(first.await.unwrap(), Attempt::Contended(_)));
    assert!(matches!(second.await.unwrap(), Attempt::Contended(_)));
    assert_eq!(line(&raw, &path(&one, &key)).await.len(), 2);
    other.abandon(&asked).await.unwrap();
    assert_eq!(line(&raw, &path(&one, &key)).await.len(), 1, "the claim still stands in line");
    one.release(&hold).await.unwrap();
}
