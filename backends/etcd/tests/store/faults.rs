//! The work of an operator on a running server: compaction, a full disk, tokens that expire.

use std::sync::Arc;
use std::time::Duration;

use dlock::backends::etcd::Etcd;
use dlock::backends::etcd::client::{AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, DeleteOptions};
use dlock::{ErrorKind, LockKey};
use dlock_contract::{Backend, Claim, Queue, Released, Signal, Standing};
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::wait_until;
use futures::future::BoxFuture;

use crate::server::{NEWS, acquire, ask, claim_for, is_quiet, lock, own, soon, stand, url};

pub(crate) async fn open(server: &Instance) -> Etcd {
    Etcd::open(&url(server), &dlock::Clock::system()).await.unwrap()
}

pub(crate) async fn raw(server: &Instance) -> Client {
    Client::connect([server.addr().to_string()], None).await.unwrap()
}

/// Uses the quota up.
pub(crate) async fn fill(raw: &mut Client) {
    let mut number = 0;
    while raw.put(format!("fill{number}"), "x".repeat(50_000), None).await.is_ok() {
        number += 1;
        assert!(number < 100, "the quota is not used up");
    }
}

pub(crate) fn started_with(options: &[&str]) -> Instance {
    let extra = options.iter().map(ToString::to_string).collect();
    Instance::start(servers::Etcd { extra, ..servers::Etcd::default() }).unwrap()
}

#[tokio::test]
async fn a_compaction_disturbs_no_waiter() {
    let server = own();
    compaction(&open(&server).await, &open(&server).await, &mut raw(&server).await).await;
}

#[tokio::test]
async fn without_space_no_lock_is_granted_and_what_is_held_can_be_renewed_and_freed() {
    let server = started_with(&["--quota-backend-bytes", QUOTA]);
    let (one, mut raw) = (open(&server).await, raw(&server).await);
    no_space(&one, &open(&server).await, &mut raw).await;
    let revision = raw.delete("fill", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    raw.compact(revision.header().unwrap().revision(), Some(CompactionOptions::new().with_physical())).await.unwrap();
    raw.defragment().await.unwrap();
    let raised = raw.alarm(AlarmAction::Get, AlarmType::Nospace, None).await.unwrap();
    for alarm in raised.alarms() {
        let mut of_member = AlarmOptions::new();
        of_member.with_member(alarm.member_id());
        raw.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(of_member)).await.unwrap();
    }
    wait_until("there is space", async || one.ready().await.is_ok()).await.unwrap();
}

#[tokio::test]
async fn a_revoked_lease_of_a_waiter_and_of_a_holder_is_told_at_once() {
    let server = own();
    revocation(&open(&server).await, &open(&server).await, &mut raw(&server).await).await;
}

/// For a moment in which [`fill`] uses it up.
pub(crate) const QUOTA: &str = "400000";

fn long(key: &LockKey) -> Arc<Claim> {
    claim_for(key, Duration::from_secs(60), true)
}

/// One process holds and another one waits while an operator compacts.
pub(crate) async fn compaction(one: &Etcd, other: &Etcd, raw: &mut Client) {
    let key = lock("compacted");
    let hold = ask(one, &long(&key)).await.unwrap();
    let waiter = long(&key);
    let mut signal = stand(other, &waiter).await.unwrap_err().signal.unwrap();
    assert!(is_quiet(&mut signal).await);
    let revision = raw.put("noise", "", None).await.unwrap().header().unwrap().revision();
    raw.compact(revision, Some(CompactionOptions::new().with_physical())).await.unwrap();
    raw.defragment().await.unwrap();
    assert!(is_quiet(&mut signal).await, "woken without news");
    one.release(&hold).await.unwrap();
    news_of(signal).await;
    let next = stand(other, &waiter).await.expect("its key is there already");
    other.release(&next).await.unwrap();
}

/// The quota is used up while one process holds the lock and another one waits for it.
pub(crate) async fn no_space(one: &Etcd, other: &Etcd, raw: &mut Client) {
    let key = lock("full");
    let hold = ask(one, &long(&key)).await.unwrap();
    let waiter = long(&key);
    let signal = stand(other, &waiter).await.unwrap_err().signal.unwrap();
    fill(raw).await;
    for renewed in [true, false] {
        let refused = claim_for(&lock("refused"), Duration::from_secs(60), renewed);
        let error = one.try_acquire(&refused, Queue::until(soon())).await.unwrap_err();
        assert!(error.kind() == &ErrorKind::Outage && error.is_retryable(), "{error}");
        assert!(error.to_string().contains("NOSPACE"), "{error}");
        one.abandon(&refused).await.unwrap();
    }
    let unready = one.ready().await.unwrap_err();
    assert!(unready.is_retryable() && unready.to_string().contains("NOSPACE"), "{unready}");
    assert!(matches!(one.renew(&[&hold]).await.pop().unwrap().unwrap(), Standing::Renewed(_)));
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    news_of(signal).await;
    let next = stand(other, &waiter).await.expect("its key is there already");
    assert_eq!(other.release(&next).await.unwrap(), Released::Released);
}

/// An operator ends the lease of the waiter, and then the lease of the holder.
pub(crate) async fn revocation(one: &Etcd, other: &Etcd, raw: &mut Client) {
    let key = lock("revoked");
    let hold = ask(one, &long(&key)).await.unwrap();
    let waiter = long(&key);
    let signal = stand(other, &waiter).await.unwrap_err().signal.unwrap();
    let keys = raw.get(crate::server::prefix(&key), Some(range())).await.unwrap();
    let lease = keys.kvs().iter().map(|key| key.lease()).find(|lease| Some(*lease as u64) != hold.group()).unwrap();
    told_of_the_end_of(lease, signal, raw).await;
    // To the end of the queue, on a new lease.
    let signal = stand(other, &waiter).await.unwrap_err().signal.unwrap();
    told_of_the_end_of(hold.group().unwrap() as i64, signal, raw).await;
    let next = stand(other, &waiter).await.expect("its key is there already");
    assert_eq!(one.renew(&[&hold]).await.pop().unwrap().unwrap(), Standing::Lost);
    other.release(&next).await.unwrap();
}

/// The news come long before a lease would expire.
async fn news_of(signal: impl Future<Output = dlock::Result<Signal>>) {
    tokio::time::timeout(NEWS, signal).await.expect("no news").unwrap();
}

/// Revokes a lease while a waiter listens.
async fn told_of_the_end_of(lease: i64, mut signal: BoxFuture<'static, dlock::Result<Signal>>, raw: &mut Client) {
    assert!(is_quiet(&mut signal).await);
    raw.lease_revoke(lease).await.unwrap();
    news_of(signal).await;
}

#[tokio::test]
async fn a_token_of_an_account_that_expires_is_renewed() {
    let server = started_with(&["--auth-token-ttl", "1"]);
    let mut raw = raw(&server).await;
    raw.user_add("root", "r", None).await.unwrap();
    raw.user_grant_role("root", "root").await.unwrap();
    raw.auth_enable().await.unwrap();
    let url = format!("etcd://root:r@{}", server.addr());
    let process = Etcd::open(&url, &dlock::Clock::system()).await.unwrap();
    let other = Etcd::open(&url, &dlock::Clock::system()).await.unwrap();
    let key = lock("token");
    let hold = ask(&process, &claim_for(&key, Duration::from_secs(60), true)).await.unwrap();
    let waiter = claim_for(&key, Duration::from_secs(60), true);
    let signal = stand(&other, &waiter).await.unwrap_err().signal.unwrap();
    // Each request prolongs a token. This is the expiry of the server, of which nobody is told.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let renewed = process.renew(&[&hold]).await.pop().unwrap();
    assert!(matches!(renewed, Ok(Standing::Renewed(_))), "{renewed:?}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(process.release(&hold).await.unwrap(), Released::Released);
    let _ = tokio::time::timeout(NEWS, signal).await.expect("no news");
    let next = acquire(&other, &waiter).await;
    assert_eq!(other.release(&next).await.unwrap(), Released::Released);
}

fn range() -> dlock::backends::etcd::client::GetOptions {
    dlock::backends::etcd::client::GetOptions::new().with_prefix()
}
