//! The end of `main` as the README shows it: guards are in a function that `main` awaits, and a shutdown waits for the releases.

use std::time::Duration;

use dlock::{Error, ErrorKind, distributed_lock};

use crate::arena::JOB;
use crate::cases::own_process::LONG;

async fn work() -> Result<(), Error> {
    let _guard = dlock::lock(JOB).ttl(LONG).acquire().await?;
    let _others = dlock::lock_all(["one", "another"]).ttl(LONG).acquire().await?;
    tokio::spawn(runs_on());
    tokio::task::yield_now().await;
    // It returns early, while the guards are alive.
    Err(Error::new(ErrorKind::Internal, "the work has failed"))
}

/// The shutdown cancels it.
#[distributed_lock(key = "body", ttl = "300s")]
async fn runs_on() -> Result<(), Error> {
    println!("held");
    std::future::pending().await
}

pub(super) async fn ends() {
    work().await.unwrap_err();
    // Until the body of the task has its lock.
    while dlock::held().iter().all(|held| !held.key.as_str().ends_with(":body")) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let report = dlock::shutdown(Duration::from_secs(1)).await;
    assert_eq!((report.cut_off, report.left_to_ttl, report.unconfirmed), (1, 0, 0));
    println!("ends");
}
