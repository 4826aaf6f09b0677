//! Sessions that are silent for longer than an answer may take, while the network works for others.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dlock_contract::{Backend, Queue};
use dlock_testkit::Proxy;
use dlock_testkit::holds::take;

use crate::named_kit::{Database, TTL, open_at};

named_cases! {
    sessions_that_are_silent_take_no_more_locks
}

/// As many sessions as are shared at most.
const SHARED: u32 = 8;
/// A request is given up after five seconds.
const GIVEN_UP: Duration = Duration::from_millis(5500);

async fn sessions_that_are_silent_take_no_more_locks(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let store = Arc::new(open_at(&url).await);
    let (mut holds, mut asking) = (Vec::new(), Vec::new());
    for number in 0..SHARED {
        // Of the sessions before, none answers, so this one opens another.
        holds.push(take(&*store, &database.claim(&format!("held {number}"), TTL)).await);
        proxy.keep();
        let (store, claim) = (store.clone(), database.claim(&format!("asked {number}"), TTL));
        let mut asked = Box::pin(async move { store.try_acquire(&claim, Queue::Leave).await });
        // The request is on its way to the session before the next one looks for a session.
        assert!(poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending())).await);
        asking.push(tokio::spawn(asked));
    }
    tokio::time::sleep(GIVEN_UP).await;
    for asked in asking {
        assert!(asked.await.unwrap().is_err(), "a session has answered: nothing is proven");
    }
    take(&*store, &database.claim("next", TTL)).await;
}
