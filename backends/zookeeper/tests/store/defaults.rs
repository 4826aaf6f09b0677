//! A server with the settings that ZooKeeper has by default. The other tests have short sessions and no limits.

use std::time::Duration;

use dlock_contract::{Attempt, Backend, Queue, Standing};
use dlock_testkit::holds::{claim_on, confirm, take, token};
use dlock_testkit::servers::{self, Instance};

use crate::kit::{claim, lock, opened};

#[tokio::test]
async fn a_server_with_its_default_settings_grants_renews_and_says_nothing() {
    let settings = [
        "tickTime=2000",
        "minSessionTimeout=4000",
        "maxSessionTimeout=40000",
        "maxClientCnxns=60",
        "4lw.commands.whitelist=srvr",
    ];
    let settings = settings.map(str::to_owned).into();
    let server = Instance::start(servers::ZooKeeper { settings, ..servers::ZooKeeper::default() }).unwrap();
    let (one, other) = (opened(&server.url()).await, opened(&server.url()).await);
    // A session of 4 s is the shortest, and a hold is valid for three quarters of it.
    assert_eq!(one.profile().ttl.min, Duration::from_secs(3));
    let health = one.ready().await.unwrap();
    // The version is asked for by `srvr`.
    assert!(health.version.is_some() && health.findings.is_empty(), "{health:?}");
    let key = lock("defaults");
    let hold = take(&one, &claim_on(&key, Duration::from_secs(10), |_| ())).await;
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
    let refused = other.try_acquire(&claim(&key), Queue::Leave).await.unwrap();
    assert!(matches!(refused, Attempt::Contended(_)), "{refused:?}");
    one.release(&hold).await.unwrap();
    let next = take(&other, &claim(&key)).await;
    assert!(token(&next) > token(&hold));
    other.release(&next).await.unwrap();
}
