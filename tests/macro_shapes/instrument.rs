//! `#[instrument]` above and below.

use dlock::{Error, distributed_lock};
use tracing::instrument;

#[instrument(skip(name))]
#[distributed_lock(key = "item:<id>:<name>")]
async fn above(id: u64, name: String) -> Result<String, Error> {
    std::future::ready(id).await;
    Ok(name)
}

#[distributed_lock(key = "item:<id>:<name>")]
#[instrument(skip(name), err)]
async fn below(id: u64, name: String) -> Result<String, Error> {
    std::future::ready(id).await;
    Ok(name)
}

pub(crate) fn make() {
    drop(above(1, "a".into()));
    drop(below(1, "a".into()));
}
