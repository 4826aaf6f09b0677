//! `reentrant`: a call inside of a call for the same lock.

use dlock::{Error, ErrorKind, distributed_lock};

use crate::stores::{is_free, on_each};

#[distributed_lock(key = "nested", backend = store)]
async fn outer(store: &str) -> Result<[Result<u64, Error>; 4], Error> {
    Ok([joins(store).await, said(store).await, plain(store).await, off(store).await])
}

#[distributed_lock(key = "nested", reentrant, fence = token, backend = store)]
async fn joins(store: &str) -> Result<u64, Error> {
    Ok(token.get())
}

#[distributed_lock(key = "nested", reentrant = true, fence = token, backend = store)]
async fn said(store: &str) -> Result<u64, Error> {
    Ok(token.get())
}

#[distributed_lock(key = "nested", fence = token, backend = store)]
async fn plain(store: &str) -> Result<u64, Error> {
    Ok(token.get())
}

#[distributed_lock(key = "nested", reentrant = false, fence = token, backend = store)]
async fn off(store: &str) -> Result<u64, Error> {
    Ok(token.get())
}

#[tokio::test]
async fn a_nested_call_joins_the_hold_only_if_it_is_reentrant() {
    on_each(async |store| {
        let [joined, said, plain, off] = outer(store).await.unwrap();
        assert_eq!(joined.unwrap(), said.unwrap(), "one hold, one token");
        for end in [plain, off] {
            assert_eq!(*end.unwrap_err().kind(), ErrorKind::WouldDeadlock);
        }
        is_free(store, "nested").await;
    })
    .await;
}
