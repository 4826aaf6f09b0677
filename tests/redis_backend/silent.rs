//! Connections on which nothing comes any more, or comes late, beside others that are well.

use std::time::Duration;

use dlock::{Key, Registry, Wait};
use dlock_testkit::{Proxy, wait_until};

use crate::database::{Database, SECOND};

/// Only a hang comes near it.
const HANG: Duration = Duration::from_secs(60);

/// Whoever is told to wait leaves the line first. Where that is on its way for longer than the wait, it must not find what
/// was won since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandon_that_comes_late_frees_no_lock_that_was_won_since() {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let registry = Registry::new();
    registry.connect("redis", &format!("{url}?restart_guard=4s")).await.unwrap();
    registry.set_default("redis").unwrap();
    // The server is young: the first attempt asks nothing of it.
    proxy.keep();
    let lock = registry.lock(Key::text("k")).ttl(HANG).wait(Wait::UpTo(HANG));
    let guard = tokio::time::timeout(HANG, lock.acquire()).await.expect("no way to the server").unwrap();
    let kept = proxy.kept();
    assert!(kept.iter().any(|bytes| *bytes > 0), "no abandon is under way");
    let scripts = || {
        let info: String = redis::cmd("INFO").arg("commandstats").query(&mut server.raw()).unwrap();
        info.lines()
            .find(|line| line.starts_with("cmdstat_evalsha:"))
            .map(|line| line.split(',').next().unwrap().to_owned())
    };
    let before = scripts();
    proxy.deliver(&kept);
    wait_until("it has arrived", async || scripts() != before).await.unwrap();
    let keys = server.keys();
    assert!(keys.iter().any(|key| key.ends_with(":k}")), "the late abandon has freed the lock: {keys:?}");
    guard.release().await.unwrap();
    registry.shutdown(SECOND).await;
}
