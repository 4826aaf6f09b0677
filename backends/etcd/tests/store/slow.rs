//! A slow network beside a good one.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use dlock::Clock;
use dlock::backends::etcd::Etcd;
use dlock_contract::Claim;
use dlock_testkit::Proxy;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::server::{shared, stand};

/// One process with a slow connection on one runtime and a good one on another.
pub(crate) struct Slow {
    pub(crate) proxy: Proxy,
    pub(crate) process: Etcd,
    pub(crate) slow: Runtime,
    pub(crate) good: Runtime,
}

impl Slow {
    pub(crate) fn start() -> Self {
        Self::before(&shared())
    }

    pub(crate) fn before(url: &str) -> Self {
        let slow = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self::with(url, slow)
    }

    /// The slow runtime has one thread. So requests that a future sends in one step, but for the first, leave together.
    pub(crate) fn on_one_thread(url: &str) -> Self {
        Self::with(url, tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap())
    }

    fn with(url: &str, slow: Runtime) -> Self {
        let (proxy, url) = Proxy::in_front_of(url).unwrap();
        let good = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let process = slow.block_on(Etcd::open(&url, &Clock::system())).unwrap();
        Self { proxy, process, slow, good }
    }

    /// Sends an attempt and gives it up; the network still has it.
    pub(crate) fn send(&self, claim: &Arc<Claim>) -> Vec<usize> {
        self.proxy.keep();
        self.slow.block_on(async { self.left(pin!(stand(&self.process, claim))).await })
    }

    /// How the network treats a request that was sent.
    pub(crate) async fn left(&self, mut asked: Pin<&mut impl Future>) -> Vec<usize> {
        let (mut before, mut quiet) = (Vec::new(), 0);
        loop {
            // It has left once something has, and nothing more comes. A busy machine may send it in parts.
            assert!(timeout(Duration::from_millis(200), asked.as_mut()).await.is_err(), "it was answered");
            let kept = self.proxy.kept();
            quiet = if kept == before { quiet + 1 } else { 0 };
            if quiet == 2 && kept.iter().any(|bytes| *bytes > 0) {
                return kept;
            }
            before = kept;
        }
    }

    /// The network delivers it at last.
    pub(crate) fn arrive(&self, sent: &[usize]) {
        self.proxy.deliver(sent);
        std::thread::sleep(Duration::from_millis(200));
    }
}
