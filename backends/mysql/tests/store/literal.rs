//! Names of other programs.

use std::sync::Arc;

use dlock::{ErrorKind, Key, LockKey, Registry};
use dlock_contract::{Attempt, Backend, Claim, Queue, Released};
use dlock_testkit::holds::{claim_on, take, token};

use crate::named_kit::{Database, Store, TTL, open, open_at};

named_cases! {
    on both:
    a_literal_key_is_the_name_that_other_programs_use
    a_literal_key_that_the_server_does_not_take_is_refused
    a_key_is_not_literal_unless_the_url_says_so
}

/// A store, and the claims of one literal key.
async fn literal(database: &Database, key: Key) -> (Store, impl Fn() -> Arc<Claim>) {
    let store = open_at(&format!("{}?keys=literal", database.url())).await;
    let key = LockKey::new(&database.name, key).unwrap();
    (store, move || claim_on(&key, TTL, |_| ()))
}

async fn tries(database: &Database, name: &str) -> bool {
    let name = name.replace('\'', "''");
    database.lines(&format!("SELECT GET_LOCK('{name}', 0)")).await == ["1"]
}

async fn a_literal_key_is_the_name_that_other_programs_use(database: Database) {
    // Names are those of the whole server, so each case has its own.
    let name = format!("it's_{}", &database.name[database.name.len() - 20..]);
    let (store, claim) = literal(&database, Key::text("").value(&name)).await;
    let (other, _) = literal(&database, Key::text("")).await;
    let hold = take(&store, &claim()).await;
    assert_eq!(store.look(&hold.claim.key).await.unwrap().holders[0].token, Some(token(&hold)));
    assert!(!tries(&database, &name).await, "two holders");
    let refused = other.try_acquire(&claim(), Queue::Leave).await.unwrap();
    assert!(matches!(refused, Attempt::Contended(_)), "{refused:?}");
    // One namespace has names of one kind: by the other one this key would be another lock.
    let error = open(&database).await.try_acquire(&claim(), Queue::Leave).await.unwrap_err();
    assert!(error.to_string().contains("way=named:literal"), "{error}");
    // The monitor looks at it.
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    assert!(tries(&database, &name).await);
}

async fn a_literal_key_that_the_server_does_not_take_is_refused(database: Database) {
    for text in ["x".repeat(65), "caf\u{e9}".to_owned()] {
        let (store, claim) = literal(&database, Key::text("").value(&text)).await;
        let error = store.identify(&claim().key).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
        let error = store.try_acquire(&claim(), Queue::Leave).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    }
    let error = Registry::new().connect("default", &format!("{}?keys=literal", database.url())).await.unwrap_err();
    assert!(error.to_string().contains("way=named"), "{error}");
}

async fn a_key_is_not_literal_unless_the_url_says_so(database: Database) {
    let store = open(&database).await;
    let key = LockKey::new(&database.name, Key::text("").value(&database.name)).unwrap();
    let hold = take(&store, &claim_on(&key, TTL, |_| ())).await;
    assert!(tries(&database, &database.name[..database.name.len().min(64)]).await);
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}
