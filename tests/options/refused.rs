//! Options that a store does not support are refused: by `verify()`, and by the call before any request.

use std::time::Duration;

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

/// The server is gone, so an answer that is no outage was given without the server.
#[distributed_lock(key = "refused:ttl", ttl = "1ms", backend = "down")]
async fn ttl_down() -> Result<(), Error> {
    Ok(())
}

/// Whatever the ttl of a call is.
#[distributed_lock(key = "refused:times", ttl = ttl, min_hold = "20s", max_hold = "10s", backend = "memory")]
async fn times(ttl: Duration) -> Result<(), Error> {
    Ok(())
}

/// Options that depend on the ttl of a call are checked at the call.
#[distributed_lock(key = "refused:later", ttl = ttl, renew = "10m", max_hold = "2h", min_hold = "5m", backend = "memory")]
async fn later(ttl: Duration) -> Result<(), Error> {
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
async fn a_call_that_the_store_cannot_serve_makes_no_request() {
    installed();
    for end in [fair().await, cohort_sqlite().await] {
        let error = end.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
        assert_eq!(error.attempts(), 0);
    }
    let minutes = |n: u64| Duration::from_secs(n * 60);
    for (end, wrong) in [
        (times(minutes(1)).await, Some("max_hold")),
        (later(minutes(1)).await, Some("renew")),
        (later(minutes(180)).await, Some("max_hold")),
        (later(minutes(60)).await, None),
    ] {
        let field = match end.as_ref().map_err(Error::kind) {
            Ok(()) => None,
            Err(ErrorKind::ConfigInvalid { field }) => Some(field.as_str()),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(field, wrong);
    }
    let error = ttl_down().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TtlOutOfRange { .. }), "{error}");
}

#[tokio::test]
async fn an_option_that_is_switched_off_is_not_refused() {
    on_each(async |store| {
        cohort_off(store).await.unwrap();
        fair_off(store).await.unwrap();
    })
    .await;
}

#[test]
fn verify_finds_exactly_the_options_that_the_stores_cannot_do() {
    installed();
    let found = dlock::verify().unwrap_err();
    let found: Vec<_> = found.iter().map(|(site, error)| (site.name(), error.kind().as_str())).collect();
    assert_eq!(
        found,
        [
            ("options::refused::fair", "unsupported"),
            ("options::refused::cohort_sqlite", "unsupported"),
            ("options::refused::ttl_down", "ttl_out_of_range"),
            ("options::refused::times", "config_invalid"),
        ]
    );
}
