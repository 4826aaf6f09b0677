//! A hold that is dropped, as by a caller that went away when the row was granted, and a caller that is not polled.

use std::time::Duration;

use dlock_contract::{BreakRecord, HoldId, Inspect};
use dlock_store::Clock;
use dlock_testkit::holds::take;
use dlock_testkit::{Mode, Proxy, in_real_time, wait_until};

use crate::row_kit::{Database, open, open_by};

row_lock_cases! {
    a_hold_that_is_dropped_while_the_monitor_asks_is_rolled_back_at_once
    a_break_that_is_not_polled_does_not_keep_the_monitors_connection
}

const TTL: Duration = Duration::from_secs(30);
/// After so long the monitor asks about a new hold. It gives a question up much later.
const LOOK: Duration = Duration::from_millis(300);

async fn a_hold_that_is_dropped_while_the_monitor_asks_is_rolled_back_at_once(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    // Time passes by the test alone, so the monitor never gives its question up.
    let clock = Clock::manual();
    let store = in_real_time(&clock, open_by(&url, &clock)).await.unwrap();
    let hold = in_real_time(&clock, take(&store, &database.claim("a", TTL))).await;
    proxy.keep();
    clock.advance(LOOK);
    wait_until("the monitor asks", async || proxy.kept().iter().any(|bytes| *bytes > 0)).await.unwrap();
    let asking = proxy.kept();
    drop(hold);
    let is_sent = async || proxy.kept().iter().zip(&asking).any(|(bytes, asked)| *asked == 0 && *bytes > 0);
    wait_until("the rollback is sent, although the monitor has no answer", is_sent).await.unwrap();
}

async fn a_break_that_is_not_polled_does_not_keep_the_monitors_connection(database: Database) {
    let holder = open(&database.url()).await.unwrap();
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let store = open(&url).await.unwrap();
    let record = BreakRecord::new("alice", 17, "test");
    // It stops at each of its requests once, among them those that end the session over the monitor's connection.
    for answers in 0..8 {
        let [one, other] = ["a", "b"].map(|text| database.claim(&format!("{text}{answers}"), TTL));
        let _holds = [take(&holder, &one).await, take(&holder, &other).await];
        proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: Duration::from_millis(100) });
        let mut stopped = store.break_hold(&one.key, HoldId::of(&one.owner), &record);
        let _ = tokio::time::timeout(Duration::from_millis(50 + 100 * answers), &mut stopped).await;
        proxy.set(Mode::Pass);
        let broken = store.break_hold(&other.key, HoldId::of(&other.owner), &record).await;
        assert!(matches!(broken, Ok(true)), "{broken:?}");
        drop(stopped);
    }
}
