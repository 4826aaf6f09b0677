//! The stream on which a waiter hears of a release, and the requests that keep leases alive, over connections that are cut
//! or fall silent.

use std::time::{Duration, Instant};

use dlock::{Guard, Key, LockKey, Registry, Wait};
use dlock_testkit::{Mode, Proxy, lateness, wait_until};
use tokio::task::JoinHandle;

use crate::server::{line, shared};

async fn open(url: &str, namespace: &str) -> Registry {
    let registry = Registry::new();
    registry.configure(|defaults| defaults.namespace = namespace.to_owned()).unwrap();
    registry.connect("etcd", url).await.unwrap();
    registry.set_default("etcd").unwrap();
    registry
}

/// A holder with a good connection, and a process behind a proxy that waits for its lock and holds another one.
struct Waiting {
    proxy: Proxy,
    holder: Guard,
    /// Kept alive over the connection that breaks.
    other: Guard,
    waiter: JoinHandle<dlock::Result<Guard>>,
}

impl Waiting {
    async fn start(other: Duration) -> Self {
        let namespace = format!("t{}", fastrand::u64(..));
        let (proxy, url) = Proxy::in_front_of(&shared()).unwrap();
        lateness::watch();
        let (near, far) = (open(&shared(), &namespace).await, open(&url, &namespace).await);
        // Its waiter finds the silence by the renewals of its lease, so the ttl is short. A busy machine answers within it.
        let job = |registry: &Registry| registry.lock("job").ttl(Duration::from_secs(4)).wait(Wait::UpTo(PATIENCE));
        let holder = job(&near).acquire().await.unwrap();
        let other = far.lock("other").ttl(other).acquire().await.unwrap();
        let waiter = tokio::spawn(job(&far).acquire());
        let key = LockKey::new(&namespace, Key::text("job")).unwrap();
        wait_until("the waiter stands in line", async || line(&key).await.len() == 2).await.unwrap();
        // Its watch is one more request.
        let sent = proxy.sent();
        wait_until("the waiter watches", async || proxy.sent() > sent).await.unwrap();
        Self { proxy, holder, other, waiter }
    }

    /// The lock is released, and the waiter must hear of it, or find it out.
    async fn ends(self) {
        self.holder.release().await.unwrap();
        let released = Instant::now();
        let next = tokio::time::timeout(PATIENCE, self.waiter).await.expect("no news").unwrap().unwrap();
        lateness::assert_within(PINGS, released, "the next grant");
        // One more request may be lost with the silent connection, which says nothing of the hold.
        for guard in [&next, &self.other] {
            let confirmed = async || guard.confirm().await.is_ok() || guard.check().is_err();
            wait_until("the hold is confirmed", confirmed).await.unwrap();
            guard.check().unwrap();
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
/// After this time the client library notices a silent connection by its own pings.
const PINGS: Duration = Duration::from_secs(15);

#[tokio::test]
async fn a_connection_that_is_cut_costs_a_waiter_no_news_and_a_holder_nothing() {
    let it = Waiting::start(Duration::from_secs(3)).await;
    it.proxy.cut();
    it.ends().await;
}

/// Without anybody else whose request notices the silence.
#[tokio::test]
async fn a_waiter_whose_connection_falls_silent_finds_the_free_lock_over_another_one() {
    let it = Waiting::start(Duration::from_secs(600)).await;
    it.proxy.set(Mode::BLACKHOLE);
    wait_until("a request is swallowed", async || it.proxy.swallowing() > 0).await.unwrap();
    it.proxy.set(Mode::Pass);
    it.ends().await;
}

/// With the first renewal, which has to connect, and with a later one.
#[tokio::test]
async fn a_holder_whose_connection_falls_silent_is_renewed_over_another_one() {
    for connected in [false, true] {
        let (proxy, url) = Proxy::in_front_of(&shared()).unwrap();
        let registry = open(&url, &format!("t{}", fastrand::u64(..))).await;
        let guard = registry.lock("silent").ttl(Duration::from_secs(6)).acquire().await.unwrap();
        let renewed = async || {
            // Since the last look: a renewal just before the first one gives the most that there can be.
            let mut left = guard.remaining();
            let is_renewed = async || {
                let before = std::mem::replace(&mut left, guard.remaining());
                left > before || guard.check().is_err()
            };
            wait_until("the hold is renewed", is_renewed).await.unwrap();
        };
        if connected {
            renewed().await;
        }
        proxy.set(Mode::BLACKHOLE);
        wait_until("the renewal is swallowed", async || proxy.swallowing() > 0).await.unwrap();
        proxy.set(Mode::Pass);
        renewed().await;
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
}
