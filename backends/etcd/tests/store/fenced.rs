//! The clause that a holder adds to its own transactions, on the real server.

use std::time::Duration;

use dlock::backends::etcd::Etcd;
use dlock::backends::etcd::client::{Client, Compare, Txn, TxnOp};
use dlock::fenced;
use dlock::{Clock, ErrorKind, Fence, Mode};
use dlock_contract::{Backend, Hold, Keeps};
use dlock_testkit::holds::claim_on;

use crate::server::{TTL, ask, claim, lock, process, raw, shared};

fn fence(hold: &Hold) -> Fence {
    Fence::from_parts(hold.claim.key.clone(), hold.token.map(u64::from)).unwrap()
}

/// Whether the write was made.
async fn write(client: &Client, held: &[Compare; 2], resource: &str, value: &str) -> bool {
    let txn = Txn::new().when(held.clone()).and_then([TxnOp::put(resource, value, None)]);
    client.kv_client().txn(txn).await.unwrap().succeeded()
}

async fn value(client: &mut Client, resource: &str) -> String {
    client.get(resource, None).await.unwrap().kvs()[0].value_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_stale_holders_write_is_refused_by_the_server() {
    let (one, other, mut raw) = (process().await, process().await, raw().await);
    let key = lock("stock");
    let resource = format!("resource:{}", fastrand::u64(..));
    let stale = ask(&one, &claim(&key)).await.unwrap();
    let held = fenced::etcd::clause(&raw, &fence(&stale)).await.unwrap();
    assert!(write(&raw, &held, &resource, "1").await && write(&raw, &held, &resource, "2").await);
    // The holder hears nothing of this.
    raw.lease_revoke(i64::try_from(stale.group().unwrap()).unwrap()).await.unwrap();
    assert!(!write(&raw, &held, &resource, "late").await, "nobody else holds the lock, and it is over all the same");
    let next = ask(&other, &claim(&key)).await.unwrap();
    let holds = fenced::etcd::clause(&raw, &fence(&next)).await.unwrap();
    assert!(write(&raw, &holds, &resource, "3").await);
    assert!(!write(&raw, &held, &resource, "late").await);
    assert_eq!(value(&mut raw, &resource).await, "3");
    let error = fenced::etcd::clause(&raw, &fence(&stale)).await.unwrap_err();
    let seen = next.token.unwrap().get();
    assert_eq!(error.kind(), &ErrorKind::FenceStale { seen }, "{error}");
    assert!(!error.is_retryable() && error.key() == Some(key.as_str()));
    other.release(&next).await.unwrap();
    assert!(!write(&raw, &holds, &resource, "late").await);
    assert_eq!(value(&mut raw, &resource).await, "3");
}

#[tokio::test]
async fn each_of_several_holders_has_a_clause_of_its_own() {
    let (process, raw) = (process().await, raw().await);
    let key = lock("permits");
    let resource = format!("resource:{}", fastrand::u64(..));
    let claim = || claim_on(&key, TTL, |claim| claim.mode = Mode::permits(2));
    let (one, two) = (ask(&process, &claim()).await.unwrap(), ask(&process, &claim()).await.unwrap());
    let held = [
        fenced::etcd::clause(&raw, &fence(&one)).await.unwrap(),
        fenced::etcd::clause(&raw, &fence(&two)).await.unwrap(),
    ];
    process.release(&one).await.unwrap();
    assert!(!write(&raw, &held[0], &resource, "one").await);
    assert!(write(&raw, &held[1], &resource, "two").await);
}

#[tokio::test]
async fn a_kept_key_lets_no_write_through() {
    let (process, raw) = (process().await, raw().await);
    let hold = ask(&process, &claim(&lock("kept"))).await.unwrap();
    let held = fenced::etcd::clause(&raw, &fence(&hold)).await.unwrap();
    process.keep(&hold, Duration::from_secs(30), None).await.unwrap();
    assert!(!write(&raw, &held, "resource", "late").await);
    let error = fenced::etcd::clause(&raw, &fence(&hold)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceStale { .. }), "{error}");
}

#[tokio::test]
async fn a_literal_name_has_its_own_clause() {
    let raw = raw().await;
    let process = Etcd::open(&format!("{}?keys=literal", shared()), &Clock::system()).await.unwrap();
    let hold = ask(&process, &claim(&lock("literal"))).await.unwrap_or_else(|| panic!("the lock is taken"));
    let held = fenced::etcd::literal_clause(&raw, &fence(&hold)).await.unwrap();
    assert!(write(&raw, &held, "resource", "1").await);
    let error = fenced::etcd::clause(&raw, &fence(&hold)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceStale { .. }), "{error}");
    process.release(&hold).await.unwrap();
    assert!(!write(&raw, &held, "resource", "late").await);
}
