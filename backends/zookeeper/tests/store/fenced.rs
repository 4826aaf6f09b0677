//! Writes that the servers do only while the lock is held.

use dlock::backends::zookeeper::client::{Acls, CreateMode};
use dlock::fenced::zookeeper::{Guarded, commit};
use dlock::{ErrorKind, Fence, Mode};
use dlock_contract::{Backend, HoldId};
use dlock_testkit::holds::{claim_on, take};

use crate::kit::{TTL, claim, lock, process, raw, shared};

#[tokio::test]
async fn a_stale_holders_guarded_write_is_refused_by_the_servers() {
    let (one, other, raw) = (process().await, process().await, raw(&shared()).await);
    let key = lock("guarded");
    let data = format!("/t{}", fastrand::u64(..));
    raw.create(&data, b"0", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    let hold = take(&one, &claim(&key)).await;
    let fence = Fence::from_parts(key.clone(), hold.token.map(|token| token.get())).unwrap();
    let guarded = Guarded::by(&raw, &fence).await.unwrap();
    let write = async |value: &[u8]| {
        let mut writer = guarded.writer(&raw).unwrap();
        writer.add_set_data(&data, value, None).unwrap();
        commit(&fence, writer).await
    };
    write(b"1").await.unwrap();
    let read = async || raw.get_data(&data).await.unwrap().0;
    assert_eq!(read().await, b"1");

    // An operator breaks the hold, and another process has the lock: the first one does not know it yet.
    let record = dlock_contract::BreakRecord::new("ops", 1, "test");
    let id = HoldId::of(&hold.claim.owner);
    assert!(other.inspect().unwrap().break_hold(&key, id, &record).await.unwrap());
    let next = take(&other, &claim(&key)).await;
    let error = write(b"2").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceStale { .. }) && !error.is_retryable(), "{error}");
    assert_eq!(read().await, b"1", "a stale holder has written");
    let error = Guarded::by(&raw, &fence).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceStale { .. }), "{error}");
    // A write that fails by itself is no stale one.
    let newer = Fence::from_parts(key, next.token.map(|token| token.get())).unwrap();
    let mut writer = Guarded::by(&raw, &newer).await.unwrap().writer(&raw).unwrap();
    writer.add_set_data(&format!("{data}/none"), b"3", None).unwrap();
    assert_eq!(commit(&newer, writer).await.unwrap_err().kind(), &ErrorKind::Protocol);
    other.release(&next).await.unwrap();
}

#[tokio::test]
async fn each_mode_has_a_node_to_guard_by() {
    let (one, raw) = (process().await, raw(&shared()).await);
    for mode in [Mode::Read, Mode::Write, Mode::permits(3)] {
        let key = lock("modes");
        let hold = take(&one, &claim_on(&key, TTL, |claim| claim.mode = mode)).await;
        let fence = Fence::from_parts(key, hold.token.map(|token| token.get())).unwrap();
        let guarded = Guarded::by(&raw, &fence).await.unwrap();
        commit(&fence, guarded.writer(&raw).unwrap()).await.unwrap();
        one.release(&hold).await.unwrap();
        // Also if the next holder has the same number of a permit.
        let next = take(&one, &claim_on(&hold.claim.key, TTL, |claim| claim.mode = mode)).await;
        assert_eq!(next.slot, hold.slot);
        let error = commit(&fence, guarded.writer(&raw).unwrap()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::FenceStale { .. }), "{mode:?}: {error}");
        one.release(&next).await.unwrap();
    }
}
