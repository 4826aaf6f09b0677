//! A release that meets a look of the monitor.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Backend, Released, Standing};
use dlock_testkit::holds::{confirm, take};
use dlock_testkit::{Mode, Proxy, wait_until};

use crate::named_kit::{Database, TTL, open_at, session_of};

named_cases! {
    a_look_that_meets_a_release_ends_no_session
}

/// How late the answer to the release comes. The look is answered before.
const LATE: Duration = Duration::from_millis(400);

async fn a_look_that_meets_a_release_ends_no_session(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let store = Arc::new(open_at(&url).await);
    // The statement of a release is known to the server from here on, so the next one is a single request.
    let first = take(&*store, &database.claim("first", TTL)).await;
    assert_eq!(store.release(&first).await.unwrap(), Released::Released);
    let freed = take(&*store, &database.claim("freed", TTL)).await;
    let kept = take(&*store, &database.claim("kept", TTL)).await;
    let session = session_of(&database, "kept").await;
    assert_eq!(session_of(&database, "freed").await, session, "they share no session, so nothing is proven");

    // The monitor's question about both has left, and the server has not heard of it.
    let connections = proxy.connections();
    proxy.keep();
    wait_until("the monitor asks", async || proxy.kept().iter().any(|bytes| *bytes > 0)).await.unwrap();
    let question = proxy.kept();
    let releasing = tokio::spawn({
        let store = store.clone();
        async move { store.release(&freed).await }
    });
    wait_until("the release is sent", async || proxy.kept() != question).await.unwrap();
    let release: Vec<_> = proxy.kept().iter().zip(&question).map(|(bytes, asked)| bytes - asked).collect();

    // The server frees the lock, and hears of the question then. Its answer to that comes first.
    let [_, before] = proxy.bytes();
    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: LATE });
    proxy.deliver(&release);
    wait_until("the lock is freed", async || proxy.bytes()[1] > before).await.unwrap();
    proxy.set(Mode::Pass);
    let delivering = async {
        loop {
            proxy.deliver(&proxy.kept());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let ending = async {
        assert_eq!(releasing.await.unwrap().unwrap(), Released::Released, "the release lost its answer");
        // The monitor has judged that answer when it looks again.
        let [_, told] = proxy.bytes();
        wait_until("the monitor looks again", async || proxy.bytes()[1] > told).await.unwrap();
        assert_eq!(proxy.connections(), connections, "the look was given up, so nothing is proven");
        assert!(matches!(confirm(&*store, &kept).await, Standing::Renewed(_)), "a neighbour lost its lock");
        assert_eq!(session_of(&database, "kept").await, session);
        assert_eq!(store.release(&kept).await.unwrap(), Released::Released);
    };
    tokio::select! {
        () = delivering => {}
        () = ending => {}
    }
}
