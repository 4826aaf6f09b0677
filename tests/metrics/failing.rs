//! Failures and refusals are counted by their kind.

use std::time::Duration;

use dlock::metrics::Metrics;
use dlock::testing::TestKit;
use dlock::{ErrorKind, Event, Label, Observer, OncePer};
use dlock_testkit::wait_until;

use crate::registry_of;
use crate::values::values;

#[tokio::test]
async fn renewals_and_releases_that_fail_are_counted() {
    let (values, kit) = (values(), TestKit::new());
    kit.registry().observe(Metrics::new());
    let guard = kit.lock("k").name("failing").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    let failed = || values.count("dlock_renewals_total", &["lock=failing", "outcome=failed"]);
    assert_eq!((failed(), values.count("dlock_failed_releases_total", &["lock=failing"])), (0, 0));
    kit.outage(true);
    kit.clock().advance(Duration::from_secs(11));
    wait_until("a failed renewal", async || failed() > 0).await.unwrap();
    drop(guard);
    let unreleased = async || values.count("dlock_failed_releases_total", &["lock=failing"]) > 0;
    wait_until("a failed release", unreleased).await.unwrap();
}

#[tokio::test]
async fn a_second_start_in_a_period_is_counted() {
    let (values, registry) = (values(), registry_of("second"));
    let lock = || registry.lock("k").name("second").once_per(OncePer::new(Duration::from_secs(86_400 * 366)));
    lock().run(|_| async {}).await.unwrap();
    let refused = async || values.count("dlock_acquisitions_total", &["lock=second", "outcome=already_run"]);
    assert_eq!(refused().await, 0);
    assert_eq!(*lock().run(|_| async {}).await.unwrap_err().kind(), ErrorKind::AlreadyRun);
    wait_until("the refusal", async || refused().await == 1).await.unwrap();
}

#[tokio::test]
async fn two_orders_of_two_locks_are_counted() {
    let (values, registry) = (values(), registry_of("orders"));
    let lock = |key: &'static str| registry.lock(key).name(key);
    let told = || -> u64 {
        let of = |name| values.count("dlock_deadlocks_total", &[name, "kind=lock_order"]);
        of("lock=left") + of("lock=right")
    };
    lock("left").run(|_| lock("right").run(|_| async {})).await.unwrap().unwrap();
    assert_eq!(told(), 0);
    lock("right").run(|_| lock("left").run(|_| async {})).await.unwrap().unwrap();
    wait_until("the cycle", async || told() == 1).await.unwrap();
}

/// Tells of a row lock whose store behaves like this: the tests of the engine see the events themselves.
struct OfRowLocks(Metrics);

impl Observer for OfRowLocks {
    fn on_event(&self, label: &Label, event: &Event) {
        if let Event::Released { held } = event {
            self.0.on_event(label, &Event::NotSettled { kind: ErrorKind::CommitRefused, held: *held });
            self.0.on_event(label, &Event::Deadlock { kind: ErrorKind::Conflict });
        } else {
            self.0.on_event(label, event);
        }
    }
}

#[tokio::test]
async fn work_that_is_not_final_and_deadlocks_of_a_store_are_counted() {
    let (values, registry) = (values(), dlock::Registry::new());
    registry.install("rows", dlock_memory::Memory::new()).unwrap();
    registry.set_default("rows").unwrap();
    registry.observe(OfRowLocks(Metrics::new()));
    registry.lock("k").name("unsettled").acquire().await.unwrap().release().await.unwrap();
    let unsettled = || values.count("dlock_unsettled_total", &["lock=unsettled", "kind=commit_refused"]);
    wait_until("the event", async || unsettled() == 1).await.unwrap();
    assert_eq!(values.count("dlock_deadlocks_total", &["lock=unsettled", "kind=conflict"]), 1);
    assert_eq!(values.gauge("dlock_held", &["lock=unsettled"]), 0.0);
}
