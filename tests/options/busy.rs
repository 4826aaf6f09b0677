//! `on_busy`: the result of a call while another owner holds the lock.

use dlock::{Error, distributed_lock};

use crate::stores::{Other, is_busy, on_each};

#[distributed_lock(key = "busy", wait = "none", backend = store)]
async fn default(store: &str) -> Result<Option<u8>, Error> {
    Ok(Some(1))
}

#[distributed_lock(key = "busy", wait = "none", on_busy = error, backend = store)]
async fn error(store: &str) -> Result<Option<u8>, Error> {
    Ok(Some(1))
}

#[distributed_lock(key = "busy", wait = "none", on_busy = skip, backend = store)]
async fn skip(store: &str) -> Result<Option<u8>, Error> {
    Ok(Some(1))
}

#[distributed_lock(key = "busy", wait = "1s", on_busy = "skip", backend = store)]
async fn skip_later(store: &str) -> Option<u8> {
    Some(1)
}

#[distributed_lock(key = "busy", wait = "none", on_busy = call(instead), backend = store)]
async fn call(store: &str) -> Result<Option<u8>, Error> {
    Ok(Some(1))
}

async fn instead(store: &str) -> Result<Option<u8>, Error> {
    Ok(u8::try_from(store.len()).ok())
}

#[distributed_lock(key = "busy", wait = "none", on_busy = call(at_once), backend = store)]
async fn call_what_is_not_async(store: &str) -> Result<Option<u8>, Error> {
    Ok(Some(1))
}

fn at_once(store: &str) -> Result<Option<u8>, Error> {
    Ok(u8::try_from(store.len()).ok())
}

#[tokio::test]
async fn a_busy_lock_is_an_error_unless_the_function_says_otherwise() {
    on_each(async |store| {
        let other = Other::holds(store, "busy").await;
        is_busy(default(store).await);
        is_busy(error(store).await);
        assert_eq!(skip(store).await.unwrap(), None);
        assert_eq!(skip_later(store).await, None);
        assert_eq!(call(store).await.unwrap(), u8::try_from(store.len()).ok());
        assert_eq!(call_what_is_not_async(store).await.unwrap(), u8::try_from(store.len()).ok());
        other.releases().await;
        assert_eq!(call_what_is_not_async(store).await.unwrap(), Some(1));
        for end in [default(store).await, error(store).await, skip(store).await, call(store).await] {
            assert_eq!(end.unwrap(), Some(1));
        }
        assert_eq!(skip_later(store).await, Some(1));
    })
    .await;
}
