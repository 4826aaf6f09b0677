//! Waiters that are almost in front: they count the deletions of older keys, and read nothing when the last one is gone.

use dlock::backends::etcd::client::{PutOptions, Txn, TxnOp};
use dlock_contract::{Backend, Signal};

use crate::server::{ask, claim, is_quiet, line, lock, process, raw, stand};

/// Behind a holder and a waiter.
#[tokio::test]
async fn a_name_that_is_deleted_twice_counts_as_one_older_key() {
    let (one, two, three) = (process().await, process().await, process().await);
    let key = lock("twice");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let (second, third) = (claim(&key), claim(&key));
    assert!(stand(&two, &second).await.is_err());
    let older = line(&key).await.pop().unwrap();
    let mut signal = stand(&three, &third).await.unwrap_err().signal.unwrap();
    assert!(is_quiet(&mut signal).await);
    let mut raw = raw().await;
    for _ in 0..2 {
        raw.delete(older.as_str(), None).await.unwrap();
        let lease = raw.lease_client().grant(60, None).await.unwrap().id();
        raw.put(older.as_str(), "", Some(PutOptions::new().with_lease(lease))).await.unwrap();
    }
    assert!(is_quiet(&mut signal).await, "in, although the first one still holds");
    // The key that was put again is younger.
    one.release(&hold).await.unwrap();
    assert!(matches!(signal.await.unwrap(), Signal::Granted(_)));
}

#[tokio::test]
async fn a_waiter_whose_key_is_deleted_with_the_last_older_one_is_not_granted_the_lock() {
    let (one, other) = (process().await, process().await);
    let key = lock("both");
    let _hold = ask(&one, &claim(&key)).await.unwrap();
    let waiter = claim(&key);
    let mut signal = stand(&other, &waiter).await.unwrap_err().signal.unwrap();
    assert!(is_quiet(&mut signal).await);
    let deletes: Vec<_> = line(&key).await.into_iter().map(|name| TxnOp::delete(name, None)).collect();
    assert_eq!(deletes.len(), 2);
    raw().await.txn(Txn::new().and_then(deletes)).await.unwrap();
    assert!(matches!(signal.await.unwrap(), Signal::Ask));
    assert!(stand(&other, &waiter).await.is_ok());
}

/// Further behind than a waiter watches all older keys.
#[tokio::test]
async fn a_waiter_far_behind_gets_the_lock_after_all_older_ones_have_left() {
    let (one, other) = (process().await, process().await);
    let key = lock("far");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let mut older = Vec::new();
    for _ in 0..7 {
        let waiter = claim(&key);
        assert!(stand(&one, &waiter).await.is_err());
        older.push(waiter);
    }
    let last = claim(&key);
    let mut signal = stand(&other, &last).await.unwrap_err().signal.unwrap();
    assert!(is_quiet(&mut signal).await);
    // The one that it watches first, and then the others in any order.
    for at in [3, 0, 6, 4, 1, 5, 2] {
        one.abandon(&older[at]).await.unwrap();
        assert!(futures::poll!(&mut signal).is_pending());
    }
    assert!(is_quiet(&mut signal).await, "in, although the first one still holds");
    one.release(&hold).await.unwrap();
    assert!(matches!(signal.await.unwrap(), Signal::Granted(_)));
}
