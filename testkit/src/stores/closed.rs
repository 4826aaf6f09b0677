//! A store that was closed.

use std::sync::Arc;

use dlock_contract::{Backend, Claim, ErrorKind, Queue};

use super::holds::{claim_on, take};
use crate::{Proxy, wait_until};

/// Takes and releases a lock, and closes the store. Fails unless the store refuses all that comes later, and leaves no connection to
/// the servers, which are behind these proxies.
pub async fn a_closed_store_opens_nothing(store: &(impl Backend + ?Sized), proxies: &[Proxy], claim: &Arc<Claim>) {
    let hold = take(store, claim).await;
    store.release(&hold).await.unwrap();
    drop(hold);
    store.close().await;
    let next = claim_on(&claim.key, claim.ttl, |_| ());
    let not_renewed = claim_on(&claim.key, claim.ttl, |claim| claim.renewed = false);
    for error in [
        store.try_acquire(&next, Queue::Leave).await.map(drop).unwrap_err(),
        store.try_acquire(&not_renewed, Queue::Leave).await.map(drop).unwrap_err(),
        store.look(&next.key).await.map(drop).unwrap_err(),
        store.ready().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::ShutDown, "{error}");
    }
    // It may say that there was nothing to undo.
    for claim in [&next, &not_renewed] {
        let _ = store.abandon(claim).await;
    }
    wait_until("all connections to be closed", async || proxies.iter().all(|proxy| proxy.connections() == 0))
        .await
        .unwrap();
}
