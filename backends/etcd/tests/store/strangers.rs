//! Locks of other tools under the same prefix, as docs/backends.md describes them: they and dlock exclude each other.

use dlock::Note;
use dlock::backends::etcd::client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::SITE;

use crate::server::{TTL, acquire, ask, claim, lock, prefix, process, raw, stand};

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
        assert_eq!(told.as_str(), Note::ANOTHER_TOOL);
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
