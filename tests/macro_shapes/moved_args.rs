#![deny(warnings)]
//! The key is made before the body, which may move or change every argument.

use dlock::{Error, distributed_lock};

struct NotClone(String);

#[distributed_lock(key = "<item.0>:<count>:<names>")]
async fn moved(item: NotClone, mut count: u32, names: String) -> Result<(NotClone, u32), Error> {
    count += 1;
    let gone = names;
    tokio::task::yield_now().await;
    Ok((NotClone(gone + &item.0), count))
}

#[distributed_lock(key = "<id>")]
async fn spawned(id: String) -> Result<String, Error> {
    Ok(tokio::spawn(async move { id }).await.unwrap_or_default())
}

pub(crate) fn make() {
    drop(moved(NotClone(String::new()), 1, String::new()));
    drop(spawned(String::new()));
}
