//! `Outcome`: every way apart, without any option for it.

use dlock::{Outcome, Wait, distributed_lock};

use crate::stores::{MS, Other, answered, on_each, soon};

#[distributed_lock(key = "outcome", wait = wait, timeout = "2s", backend = store)]
async fn call(store: &str, wait: Wait, takes_too_long: bool) -> Outcome<u8> {
    if takes_too_long {
        std::future::pending::<()>().await;
    }
    1.into()
}

#[tokio::test]
async fn every_end_of_a_call_has_its_own_outcome() {
    on_each(async |store| {
        assert!(matches!(call(store, Wait::None, false).await, Outcome::Ran(1)));
        let other = Other::holds(store, "outcome").await;
        assert!(matches!(call(store, Wait::None, false).await, Outcome::Busy(_)));
        let waits = answered(async || match call(store, Wait::UpTo(1000 * MS), false).await {
            Outcome::Outage(error) => Err(error),
            end => Ok(end),
        });
        assert!(matches!(waits.await.unwrap(), Outcome::WaitTimeout(_)));
        other.releases().await;
        assert!(matches!(soon(call(store, Wait::None, true)).await, Outcome::BodyTimeout(_)));
        assert!(matches!(call("nowhere", Wait::None, false).await, Outcome::Refused(_)));
    })
    .await;
}
