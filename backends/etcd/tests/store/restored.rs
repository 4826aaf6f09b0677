//! A server whose data is put back to an older state: a restored backup. Revisions, and so tokens, are given again.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dlock::backends::etcd::Etcd;
use dlock::backends::etcd::client::{Client, Txn, TxnOp};
use dlock::{Clock, ErrorKind, Fence, fenced};
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::token;
use dlock_testkit::servers::Instance;
use dlock_testkit::wait_until;

use crate::combined::{ask_all, locks};
use crate::server::{ask, claim, claim_for, lock, own, url};

const LONG: Duration = Duration::from_secs(60);

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

/// Puts the data back as it was at the copy.
fn restore(server: &Instance) {
    server.kill9().unwrap();
    let data = server.folder().join("data");
    std::fs::remove_dir_all(&data).unwrap();
    copy(&server.folder().join("backup"), &data);
    server.restart().unwrap();
}

#[tokio::test]
async fn a_restored_backup_confirms_no_newer_hold_and_grants_no_older_token() {
    let server = own();
    let open = async || Etcd::open(&url(&server), &Clock::system()).await.unwrap();
    let process = open().await;
    let claim = |key: &_| claim_for(key, LONG, true);
    let (before, key, third) = (lock("before"), lock("key"), lock("third"));
    let old = ask(&process, &claim(&before)).await.unwrap();
    server.kill9().unwrap();
    copy(&server.folder().join("data"), &server.folder().join("backup"));
    server.restart().unwrap();
    let taking = claim(&key);
    let hold = loop {
        // The connection has broken.
        if let Ok(Attempt::Acquired(hold)) = process.try_acquire(&taking, Queue::Leave).await {
            break hold;
        }
    };
    let raw = Client::connect([server.addr().to_string()], None).await.unwrap();
    let fence = Fence::from_parts(key.clone(), hold.token.map(u64::from)).unwrap();
    let held = fenced::etcd::clause(&raw, &fence).await.unwrap();
    let mut last = token(&hold);
    for _ in 0..10 {
        let other = ask(&process, &claim(&third)).await.unwrap();
        process.release(&other).await.unwrap();
        last = token(&other);
    }
    restore(&server);

    // A hold that the backup knows goes on.
    let standing = async |hold| loop {
        if let Ok(standing) = process.renew(&[hold]).await.pop().unwrap() {
            return standing;
        }
    };
    assert!(matches!(standing(&old).await, Standing::Renewed(_)));
    assert_eq!(standing(&hold).await, Standing::Lost);
    let raw = Client::connect([server.addr().to_string()], None).await.unwrap();
    let write = Txn::new().when(held).and_then([TxnOp::put("resource", "late", None)]);
    assert!(!raw.kv_client().txn(write).await.unwrap().succeeded());

    // A process that has seen newer tokens takes none that is older.
    let refused = claim(&key);
    let error = process.try_acquire(&refused, Queue::Leave).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::FenceRegression && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("--bump-revision"), "{error}");
    process.abandon(&refused).await.unwrap();
    // One that was started since cannot know.
    let fresh = open().await;
    let next = ask(&fresh, &claim(&key)).await.expect("the refused attempt left its key");
    assert_eq!(fresh.release(&next).await.unwrap(), Released::Released);
    let given_again = ask(&fresh, &claim(&third)).await.unwrap();
    assert!(token(&given_again) <= last, "this test shows nothing");
    assert_eq!(fresh.release(&given_again).await.unwrap(), Released::Released);
    assert_eq!(process.release(&old).await.unwrap(), Released::Released);
}

/// The highest token that the process has seen is one of a transaction of many requests.
#[tokio::test]
async fn a_token_of_combined_requests_is_not_granted_again() {
    let server = own();
    server.kill9().unwrap();
    copy(&server.folder().join("data"), &server.folder().join("backup"));
    server.restart().unwrap();
    let process = Etcd::open(&url(&server), &Clock::system()).await.unwrap();
    let claim = |key: &_| claim_for(key, LONG, true);
    let last = loop {
        let claims: Vec<_> = locks().iter().map(claim).collect();
        let tokens: Vec<_> = ask_all(&process, &claims).await.iter().flatten().map(token).collect();
        let last = *tokens.iter().max().unwrap();
        if tokens.iter().filter(|token| **token == last).count() > 1 {
            break last;
        }
    };
    restore(&server);
    // The next revision is the one of that transaction.
    let raw = Client::connect([server.addr().to_string()], None).await.unwrap();
    while raw.kv_client().put("other", "", None).await.unwrap().header().unwrap().revision().cast_unsigned() < last - 1
    {
    }

    let next = claim(&lock("next"));
    let answer = loop {
        match process.try_acquire(&next, Queue::Leave).await {
            Err(error) if error.is_retryable() => {}
            answer => break answer,
        }
    };
    match answer {
        Err(error) => assert_eq!(*error.kind(), ErrorKind::FenceRegression, "{error}"),
        // An attempt whose answer was lost has used up that revision.
        Ok(Attempt::Acquired(hold)) => assert!(token(&hold) > last, "the token was granted before"),
        Ok(other) => panic!("{other:?}"),
    }
}

/// A member that was bootstrapped anew: each cluster would grant the lock, with the same token.
#[tokio::test]
async fn hosts_of_two_clusters_are_refused() {
    let (one, other) = (own(), own());
    let url = format!("etcd://{},{}", one.addr(), other.addr());
    let error = Etcd::open(&url, &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }) && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains(&one.addr().to_string()), "{error}");

    // The second one is down when the store is opened, and is met later.
    other.kill9().unwrap();
    let store = Etcd::open(&url, &Clock::system()).await.unwrap();
    let hold = ask(&store, &claim(&lock("two"))).await.unwrap();
    other.restart().unwrap();
    let error = store.ready().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
    one.kill9().unwrap();
    let mut answer = None;
    let refused = wait_until("the member of the other cluster is refused", async || {
        let renewed = store.renew(&[&hold]).await.remove(0);
        let is_refused = renewed.as_ref().is_err_and(|error| format!("{error:?}").contains("another cluster"));
        answer = Some(renewed);
        is_refused
    });
    refused.await.unwrap_or_else(|error| panic!("{error}: {answer:?}"));
}

/// A member that is bootstrapped anew behind a connection that lives on.
#[tokio::test]
async fn a_server_that_is_bootstrapped_anew_is_another_cluster() {
    let server = own();
    let url = format!("etcd://{}", server.addr());
    let store = Etcd::open(&url, &Clock::system()).await.unwrap();
    let hold = ask(&store, &claim(&lock("anew"))).await.unwrap();
    server.kill9().unwrap();
    std::fs::remove_dir_all(server.folder().join("data")).unwrap();
    server.restart().unwrap();
    // It is the only host, so all hosts tell the new cluster, and the store goes on there. The hold is gone.
    let lost = async || matches!(store.renew(&[&hold]).await.remove(0), Ok(Standing::Lost));
    wait_until("the hold is lost", lost).await.unwrap();
}
