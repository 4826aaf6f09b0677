//! A hold that is dropped, as by a caller that went away when the row was granted.

use std::time::Duration;

use dlock_store::Clock;
use dlock_testkit::holds::take;
use dlock_testkit::{Proxy, wait_until};

use crate::row_kit::{Database, open_by};

row_lock_cases! {
    a_hold_that_is_dropped_while_the_monitor_asks_is_rolled_back_at_once
}

const TTL: Duration = Duration::from_secs(30);
/// After so long the monitor asks about a new hold. It gives a question up much later.
const LOOK: Duration = Duration::from_millis(300);

async fn a_hold_that_is_dropped_while_the_monitor_asks_is_rolled_back_at_once(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    // Time passes by the test alone, so the monitor never gives its question up.
    let clock = Clock::manual();
    let store = open_by(&url, &clock).await.unwrap();
    let hold = take(&store, &database.claim("a", TTL)).await;
    proxy.keep();
    clock.advance(LOOK);
    wait_until("the monitor asks", async || proxy.kept().iter().any(|bytes| *bytes > 0)).await.unwrap();
    let asking = proxy.kept();
    drop(hold);
    let is_sent = async || proxy.kept().iter().zip(&asking).any(|(bytes, asked)| *asked == 0 && *bytes > 0);
    wait_until("the rollback is sent, although the monitor has no answer", is_sent).await.unwrap();
}
