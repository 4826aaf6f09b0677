//! What a store cannot do is refused: by `verify()`, and by the call before it asks the store anything.

use dlock::{Error, ErrorKind, distributed_lock};

use crate::stores::{installed, on_each};

#[distributed_lock(key = "refused:fair", fair, backend = "sqlite")]
async fn fair() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "refused:sqlite", cohort = "64", backend = "sqlite")]
async fn cohort_sqlite() -> Result<(), Error> {
    Ok(())
}

/// The server is gone: an answer that is no outage needed none.
#[distributed_lock(key = "refused:ttl", ttl = "1ms", backend = "down")]
async fn ttl_down() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "cohort:off", cohort = false, backend = store)]
async fn cohort_off(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "fair:off", fair = false, backend = store)]
async fn fair_off(store: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn a_call_for_what_the_store_cannot_do_asks_the_store_nothing() {
    installed();
    for end in [fair().await, cohort_sqlite().await] {
        let error = end.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
        assert_eq!(error.attempts(), 0);
    }
    let error = ttl_down().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TtlOutOfRange { .. }), "{error}");
}

#[tokio::test]
async fn what_is_switched_off_is_not_refused() {
    on_each(async |store| {
        cohort_off(store).await.unwrap();
        fair_off(store).await.unwrap();
    })
    .await;
}

#[test]
fn verify_finds_exactly_what_the_stores_cannot_do() {
    installed();
    let found = dlock::verify().unwrap_err();
    let found: Vec<_> = found.iter().map(|(site, error)| (site.name(), error.kind().as_str())).collect();
    assert_eq!(
        found,
        [
            ("options::refused::fair", "unsupported"),
            ("options::refused::cohort_sqlite", "unsupported"),
            ("options::refused::ttl_down", "ttl_out_of_range"),
        ]
    );
}
