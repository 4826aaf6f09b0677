//! `timeout`: how long a body may take.

use dlock::{Error, ErrorKind, distributed_lock};

use crate::stores::{MS, is_free, on_each, soon};

#[distributed_lock(key = "timeout", timeout = "50ms", backend = store)]
async fn bounded(store: &str) -> Result<(), Error> {
    std::future::pending().await
}

#[distributed_lock(key = "timeout", timeout = "20s", backend = store)]
async fn in_time(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "timeout", backend = store)]
async fn default(store: &str) -> Result<(), Error> {
    tokio::time::sleep(200 * MS).await;
    Ok(())
}

#[tokio::test]
async fn a_body_is_cut_off_at_its_limit_and_has_none_by_default() {
    on_each(async |store| {
        assert_eq!(*soon(bounded(store)).await.unwrap_err().kind(), ErrorKind::BodyTimeout);
        is_free(store, "timeout").await;
        in_time(store).await.unwrap();
        default(store).await.unwrap();
    })
    .await;
}
