//! Locks of other tools, as README.md describes them: they and dlock exclude each other.

use std::process::Stdio;

use dlock::backends::etcd::Etcd;
use dlock::backends::etcd::client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use dlock::{Clock, ErrorKind, Key, LockKey, Note};
use dlock_contract::{Backend, Inspect, Listing, Queue, Released, Signal};
use dlock_testkit::holds::SITE;
use dlock_testkit::servers::{Tree, find_program};
use dlock_testkit::wait_until;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::names::EPOCHS;
use crate::server::{TTL, acquire, ask, claim, claim_for, lock, prefix, process, raw, shared, stand};

/// Puts the key that Go's `concurrency.Mutex` and `Election` and `etcdctl lock` put: it ends in their lease. It is put
/// only if it is not there.
pub(crate) async fn stand_as_go(lock: &dlock::LockKey, value: &str) -> (i64, Vec<u8>) {
    let mut client = raw().await;
    let lease = client.lease_grant(i64::try_from(TTL.as_secs() * 10).unwrap(), None).await.unwrap().id();
    let key = format!("{}{lease:x}", prefix(lock)).into_bytes();
    let absent = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
    let put = TxnOp::put(key.clone(), value, Some(PutOptions::new().with_lease(lease)));
    client.txn(Txn::new().when([absent]).and_then([put])).await.unwrap();
    (lease, key)
}

#[tokio::test]
async fn a_lock_of_another_tool_is_waited_for_and_reported_as_that() {
    let process = process().await;
    for (name, value) in [("mutex", ""), ("election/eu", "candidate 1")] {
        let key = lock(name);
        let (lease, _) = stand_as_go(&key, value).await;
        assert!(ask(&process, &claim(&key)).await.is_none(), "two holders");
        assert_eq!(process.identify(&key).unwrap().names(), [prefix(&key)]);
        let told = process.look(&key).await.unwrap().note().cloned().unwrap();
        assert_eq!(told.as_str(), Note::FOREIGN_CLIENT);
        let waiter = claim(&key);
        let signal = stand(&process, &waiter).await.unwrap_err().signal.unwrap();
        raw().await.lease_revoke(lease).await.unwrap();
        signal.await.unwrap();
        let hold = acquire(&process, &waiter).await;
        assert_eq!(process.release(&hold).await.unwrap(), Released::Released);
    }
}

#[tokio::test]
async fn another_tool_stands_behind_our_lock_and_gets_it_after_us() {
    let process = process().await;
    let key = lock("behind");
    let hold = ask(&process, &claim(&key)).await.unwrap();
    assert_eq!(process.look(&key).await.unwrap().note().cloned().unwrap().site(), Some(SITE));
    let (lease, own) = stand_as_go(&key, "").await;
    // They hold the lock when no key of the queue is older.
    let first = crate::server::line(&key).await;
    assert!(first.len() == 2 && first[1].as_bytes() == own);
    process.release(&hold).await.unwrap();
    assert_eq!(crate::server::line(&key).await, [String::from_utf8(own).unwrap()]);
    assert!(ask(&process, &claim(&key)).await.is_none(), "two holders");
    raw().await.lease_revoke(lease).await.unwrap();
}

/// `etcdctl lock`, which prints its key once it holds the lock, and holds it until it is asked to end.
fn etcdctl_lock(name: &str) -> Child {
    let unpacked = Tree::named("etcdctl").root().join("usr/bin/etcdctl");
    let program = unpacked.is_file().then_some(unpacked).or_else(|| find_program("etcdctl"));
    let mut command = Command::new(program.expect("etcdctl is missing: cargo xtask servers installs it"));
    command.args(["--endpoints", shared().trim_start_matches("etcd://"), "lock", name]).stdout(Stdio::piped());
    // It ends with this test's runtime, also if the test fails.
    command.kill_on_drop(true).spawn().unwrap()
}

async fn is_in(child: &mut Child, name: &str) {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
    assert!(line.starts_with(&format!("{name}/")), "{line}");
}

/// Ends the program, and with it the lock.
async fn ends(mut child: Child) {
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test]
async fn etcdctl_and_ours_wait_for_each_other_under_both_kinds_of_names() {
    let literal = Etcd::open(&format!("{}?keys=literal", shared()), &Clock::system()).await.unwrap();
    let plain_id = format!("jobs/{}", fastrand::u64(..));
    let key = LockKey::new("any", Key::text("jobs/").value(&plain_id.trim_start_matches("jobs/"))).unwrap();
    let own = lock("jobs/nightly");
    let own_name = prefix(&own).trim_end_matches('/').to_owned();
    let process = process().await;
    for (process, key, name) in [(&literal, &key, plain_id.as_str()), (&process, &own, own_name.as_str())] {
        assert_eq!(process.identify(key).unwrap().names(), [format!("{name}/")]);
        let mut theirs = etcdctl_lock(name);
        is_in(&mut theirs, name).await;
        assert!(ask(process, &claim(key)).await.is_none(), "two holders");
        let told = process.look(key).await.unwrap().note().cloned().unwrap();
        assert_eq!(told.as_str(), Note::FOREIGN_CLIENT);
        let waiter = claim_for(key, TTL * 10, true);
        let signal = stand(process, &waiter).await.unwrap_err().signal.unwrap();
        let (news, ()) = tokio::join!(signal, ends(theirs));
        let Signal::Granted(hold) = news.unwrap() else { panic!("the only waiter has to ask") };

        let mut theirs = etcdctl_lock(name);
        wait_until("etcdctl waits", async || process.look(key).await.unwrap().waiters == Some(1)).await.unwrap();
        assert_eq!(process.look(key).await.unwrap().note(), Some(&hold.claim.note));
        assert_eq!(process.release(&hold).await.unwrap(), Released::Released);
        is_in(&mut theirs, name).await;
        assert!(ask(process, &claim(key)).await.is_none(), "two holders");
        ends(theirs).await;
        assert!(ask(process, &claim(key)).await.is_some());
    }
}

#[tokio::test]
async fn literal_names_are_used_only_if_the_url_says_so() {
    let literal = Etcd::open(&format!("{}?keys=literal", shared()), &Clock::system()).await.unwrap();
    let plain = process().await;
    let key = lock("both");
    let _ours = ask(&plain, &claim(&key)).await.unwrap();
    assert!(ask(&literal, &claim(&key)).await.is_some(), "two names are two locks");
    assert!(plain.profile().any_key && plain.profile().read_write && plain.profile().permits);
    assert!(!literal.profile().any_key && !literal.profile().read_write && !literal.profile().permits);
    for name in ["a b", EPOCHS.trim_end_matches('/'), EPOCHS] {
        let key = LockKey::new("any", Key::text(name)).unwrap();
        let error = literal.try_acquire(&claim(&key), Queue::Leave).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{name}: {error}");
    }
}

/// The keys by which a late request is refused end in a lease and a number, as the keys of locks do.
#[tokio::test]
async fn a_listing_of_literal_names_does_not_show_our_own_keys() {
    let literal = Etcd::open(&format!("{}?keys=literal", shared()), &Clock::system()).await.unwrap();
    let mut raw = raw().await;
    let lease = raw.lease_grant(60, None).await.unwrap().id();
    let epoch = format!("{EPOCHS}{lease:016x}/07");
    raw.put(epoch.as_str(), "", Some(PutOptions::new().with_lease(lease))).await.unwrap();
    let page = literal.list(&Listing::of("").with(|listing| listing.prefix = epoch)).await.unwrap();
    assert!(page.locks.is_empty(), "{:?}", page.locks);
    raw.lease_revoke(lease).await.unwrap();
}
