//! A server with the settings that ZooKeeper has by default. The other tests have short sessions and no limits.

use std::time::Duration;

use dlock::ErrorKind;
use dlock_contract::{Attempt, Backend, Queue, Standing};
use dlock_testkit::holds::{claim_on, confirm, take, token};
use dlock_testkit::servers::{self, Instance};

use crate::kit::{claim, lock, open, opened};

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
    assert!(health.version.is_some(), "{health:?}");
    assert_eq!(health.findings, [""; 0]);
    let told = opened(&format!("{}?tick=2s", server.url())).await;
    assert_eq!(told.profile().ttl, one.profile().ttl);
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

/// A session shorter than two ticks hides the tick.
#[tokio::test]
async fn a_long_tick_that_the_servers_do_not_tell_is_read_from_the_url() {
    let settings = ["tickTime=4000", "minSessionTimeout=500", "4lw.commands.whitelist=srvr"];
    let settings = settings.map(str::to_owned).into();
    let server = Instance::start(servers::ZooKeeper { settings, ..servers::ZooKeeper::default() }).unwrap();
    let guessed = opened(&server.url()).await;
    let findings = guessed.ready().await.unwrap().findings.join("; ");
    assert!(findings.contains("takes 2s") && findings.contains("4lw.commands.whitelist"), "{findings}");
    let told = opened(&format!("{}?tick=4s", server.url())).await;
    assert_eq!(told.ready().await.unwrap().findings, [""; 0]);
    assert_eq!(told.profile().takeover_delay, Duration::from_millis(8500));
    // A session lasts half a tick longer than its ttl.
    let longer = guessed.profile().ttl.max - told.profile().ttl.max;
    assert_eq!(longer, Duration::from_secs(1));
    let key = lock("tick");
    let hold = take(&told, &claim_on(&key, Duration::from_millis(1500), |_| ())).await;
    told.release(&hold).await.unwrap();
    for wrong in ["tick=0s", "tick=2min", "tick=4"] {
        let error = open(&format!("{}?{wrong}", server.url())).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "tick"), "{wrong}: {error}");
    }
}
