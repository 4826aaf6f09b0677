//! The log while a server refuses renewals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dlock::{Event, Key, Label, Observer, Registry};
use dlock_testkit::{Log, lateness, wait_until};
use tracing::Level;

use super::database::{Database, SECOND};

/// How many renewals failed, and how many locks were lost.
#[derive(Clone, Default)]
struct Counted {
    failed: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
}

impl Observer for Counted {
    fn on_event(&self, _: &Label, event: &Event) {
        match event {
            Event::RenewalFailed { .. } => self.failed.fetch_add(1, Ordering::SeqCst),
            Event::Lost { .. } => self.lost.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_that_a_server_refuses_are_logged_once_however_many_holds_it_has() {
    let log = Log::default();
    let writer = log.clone();
    // For the whole process: the warnings about renewals come from dlock's own thread.
    tracing_subscriber::fmt().with_max_level(Level::WARN).with_ansi(false).with_writer(move || writer.clone()).init();
    lateness::watch();
    for round in 0..10 {
        if are_logged_once(&log, &format!("refuses{round}")).await {
            return;
        }
    }
    panic!("this machine was too slow each time: nothing is proven");
}

const HOLDS: u64 = 200;

/// False if this process was not run for so long that the leases ended before the renewals.
async fn are_logged_once(log: &Log, store: &str) -> bool {
    let began = std::time::Instant::now();
    let server = Database::own(&[]).server;
    server.ask("ACL SETUSER app on >pw ~* &* +@all").unwrap();
    let (registry, counted) = (Registry::new(), Counted::default());
    registry.observe(counted.clone());
    registry.connect(store, &format!("redis://app:pw@{}", server.addr())).await.unwrap();
    registry.set_default(store).unwrap();
    let mut guards = Vec::new();
    for number in 0..HOLDS {
        guards.push(registry.lock(Key::text("k").value(&number)).ttl(6 * SECOND).acquire().await.unwrap());
    }
    server.ask("ACL SETUSER app -@scripting").unwrap();
    let all_lost = async || counted.lost.load(Ordering::SeqCst) == HOLDS;
    wait_until("all are lost", all_lost).await.unwrap();
    if counted.failed.load(Ordering::SeqCst) < 2 * HOLDS && lateness::since(began) > 2 * SECOND {
        return false;
    }
    let text = log.text();
    let told: Vec<_> = text.lines().filter(|line| line.contains("the store fails;") && line.contains(store)).collect();
    assert!(matches!(told[..], [line] if line.contains("NOPERM")), "{told:#?}");
    // An observer hears of each failure.
    assert!(counted.failed.load(Ordering::SeqCst) >= 2 * HOLDS);
    drop(guards);
    registry.shutdown(SECOND).await;
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ends_in_the_queue_names_the_holder() {
    let database = Database::own(&[]);
    let (holder, waiter) = (Registry::new(), Registry::new());
    for registry in [&holder, &waiter] {
        registry.connect("redis", &database.url).await.unwrap();
        registry.set_default("redis").unwrap();
    }
    let guard = holder.lock(Key::text("named")).ttl(60 * SECOND).acquire().await.unwrap();
    let error = waiter.lock(Key::text("named")).wait(dlock::Wait::UpTo(SECOND)).acquire().await.unwrap_err();
    assert_eq!(*error.kind(), dlock::ErrorKind::WaitTimeout, "{error}");
    assert!(error.to_string().contains("told.rs"), "{error}");
    guard.release().await.unwrap();
}
