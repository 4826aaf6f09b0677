//! A release that takes the lock for the next caller in the same request.

use std::sync::Arc;
use std::time::Duration;

use dlock::Clock;
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::take;

use crate::named_kit::{Database, TTL, open, session_of};

named_cases! {
    a_token_that_is_not_drawn_for_the_next_caller_is_no_loss_of_the_one_before
}

/// The session is killed when it has freed the lock and has it again. The lock was held to the end of the first hold.
async fn a_token_that_is_not_drawn_for_the_next_caller_is_no_loss_of_the_one_before(database: Database) {
    for _ in 0..8 {
        let store = Arc::new(open(&database).await);
        let (claim, next) = (database.claim("a", TTL), database.claim("a", TTL));
        let hold = take(&*store, &claim).await;
        let session = session_of(&database, "a").await.unwrap();
        let hindering = database.hinder_draws(claim.key.as_str()).await;
        let releasing = tokio::spawn({
            let (store, until) = (store.clone(), Clock::system().now().after(TTL));
            async move { store.exchange().unwrap().release_to(&hold, &next, until).await.map(|(released, _)| released) }
        });
        // The server ends the wait for the row itself after a second.
        let mut is_killed = false;
        while !is_killed && !releasing.is_finished() {
            is_killed = database.a_draw_waits(session).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if is_killed {
            database.kill(session).await;
        }
        drop(hindering);
        assert_eq!(releasing.await.unwrap().unwrap(), Released::Released, "killed: {is_killed}");
        if is_killed {
            return;
        }
    }
    panic!("no session was killed while it drew a token: nothing is proven");
}
