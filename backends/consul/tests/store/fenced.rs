//! Guarded writes: a holder's goes through, a former holder's does not.

use dlock::fenced::consul::Writer;
use dlock::{ErrorKind, Fence};
use dlock_contract::{Backend, Hold};
use dlock_testkit::holds::{claim, claim_on, take, token};
use dlock_testkit::servers::shared;

use crate::server::{LONG, Raw, fresh, name, process};

fn fence(hold: &Hold) -> Fence {
    Fence::from_parts(hold.claim.key.clone(), hold.token.map(|token| token.get())).unwrap()
}

#[tokio::test]
async fn a_stale_holders_write_is_refused() {
    let (store, raw) = (process("lock_delay=0s").await, Raw::shared());
    let writer = Writer::new(&shared().consul().unwrap()).unwrap();
    let (claim, resource) = (claim(&fresh("fenced"), LONG), fresh("data/stock"));
    let first = take(&store, &claim).await;
    writer.set(&fence(&first), &resource, b"7").await.unwrap();
    writer.set(&fence(&first), &resource, b"8").await.unwrap();
    assert_eq!(raw.entry(&resource)["Value"], "OA==");
    // An operator takes the lock from a holder that does not know it yet.
    raw.destroy(&raw.holder(&name(&claim)).unwrap());
    let refused = |error: dlock::Error| match error.kind() {
        ErrorKind::FenceStale { seen } => *seen,
        _ => panic!("{error}"),
    };
    let seen = refused(writer.set(&fence(&first), &resource, b"1").await.unwrap_err());
    assert!(seen > token(&first), "nobody has the lock, and the next token is higher");
    let second = take(&store, &claim_on(&claim.key, LONG, |_| ())).await;
    assert_eq!(refused(writer.set(&fence(&first), &resource, b"2").await.unwrap_err()), token(&second));
    refused(writer.delete(&fence(&first), &resource).await.unwrap_err());
    assert_eq!(raw.entry(&resource)["Value"], "OA==");
    writer.delete(&fence(&second), &resource).await.unwrap();
    assert!(raw.entry(&resource).is_null());
    store.release(&second).await.unwrap();
    refused(writer.set(&fence(&second), &resource, b"3").await.unwrap_err());
}

#[tokio::test]
async fn the_clause_guards_a_transaction_of_the_users_own() {
    for options in ["", "keys=literal"] {
        let (store, raw) = (process(options).await, Raw::shared());
        let writer = Writer::new(&format!("{}?{options}", shared().consul().unwrap())).unwrap();
        let (claim, resource) = (claim(&fresh("clause"), LONG), fresh("data/own"));
        let hold = take(&store, &claim).await;
        let clause = writer.clause(&fence(&hold)).unwrap();
        let write = format!(r#"PUT /v1/txn [{clause},{{"KV":{{"Verb":"set","Key":"{resource}","Value":"MQ=="}}}}]"#);
        raw.ask(&write).unwrap();
        assert_eq!(raw.entry(&resource)["Value"], "MQ==", "{options}");
        store.release(&hold).await.unwrap();
        let refused = raw.ask(&write).unwrap_err();
        assert!(refused.to_string().contains("409"), "{options}: {refused}");
    }
}
