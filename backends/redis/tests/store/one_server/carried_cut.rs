//! The connection breaks while a release asks for the next caller.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock::{Backoff, Event, Held, Key, Label, Lock, Observer, Registry, Retry, Wait};
use dlock_testkit::{Mode, Proxy, wait_until};
use futures::FutureExt;
use redis::Commands;

use super::database::{Database, SECOND};
use crate::names::{self, FENCE};

/// The place where the connection breaks.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Before the request has come to the server.
    Request,
    /// The server has answered, and nobody hears it.
    Answer,
    /// The same, and no connection comes up for a while.
    Server,
}

/// Hears whether a release has failed.
struct Failures(Arc<AtomicBool>);

impl Observer for Failures {
    fn on_event(&self, _: &Label, event: &Event) {
        if let Event::ReleaseFailed { .. } = event {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

fn lock(registry: &Registry) -> Lock {
    let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(200));
    // Longer than the wait, so no caller waits for the end of a lease.
    registry
        .lock("k")
        .ttl(120 * SECOND)
        .wait(Wait::UpTo(40 * SECOND))
        .retry(Retry { times: 10_000, backoff: Some(backoff) })
}

/// The releaser hears that the lock was its own to the end, which is all it can know, and the observers hear of the
/// failure. The next ones get the lock in their order, each of them once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_loses_neither_a_waiter_nor_its_place() {
    for cut in [Cut::Request, Cut::Answer, Cut::Server] {
        let (server, name) = (Database::own(&[]), names::of_default(Key::text("k")));
        let (proxy, through) = Proxy::in_front_of(&server.url).unwrap();
        let (registry, other) = (Registry::new(), Registry::new());
        for (registry, url) in [(&registry, &through), (&other, &server.url)] {
            registry.connect("redis", url).await.unwrap();
            registry.set_default("redis").unwrap();
        }
        // From now on pushes arrive.
        let former = other.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn(lock(&registry).acquire());
        wait_until("it stands in the line", async || server.raw().zcard::<_, u64>(format!("{name}:q")).unwrap() == 1)
            .await
            .unwrap();
        former.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();

        let failed = Arc::new(AtomicBool::new(false));
        registry.observe(Failures(failed.clone()));
        let held = lock(&registry).acquire().await.unwrap();
        let before = held.fence().unwrap().get();
        // Nobody, once our own thread has given the next one's up, which the cut has cost its answer.
        let holder = || server.raw().get::<_, Option<String>>(&name).unwrap();
        let first = holder();
        let entered = Arc::new(Mutex::new(vec![(before, 0)]));
        let mut waiting = Vec::new();
        for id in 1..4 {
            let entered = entered.clone();
            let body = async move |held: Held| entered.lock().unwrap().push((held.fence().unwrap().get(), id));
            let mut waiter = lock(&registry).run(body).boxed();
            assert!((&mut waiter).now_or_never().is_none());
            waiting.push(tokio::spawn(waiter));
        }
        match cut {
            Cut::Request => proxy.keep(),
            Cut::Answer | Cut::Server => proxy.set(Mode::DropReplies),
        }
        let release = tokio::spawn(held.release());
        match cut {
            Cut::Request => {
                wait_until("the request has left", async || proxy.kept().iter().any(|kept| *kept > 0)).await.unwrap();
                proxy.cut();
            }
            Cut::Answer => {
                wait_until("the next one has the lock", async || holder() != first).await.unwrap();
                // The answer may not have come to the proxy yet. When it is cut, the client connects again.
                let sent = proxy.sent();
                wait_until("the answer is cut", async || proxy.sent() > sent).await.unwrap();
            }
            Cut::Server => {}
        }
        if !matches!(cut, Cut::Server) {
            proxy.set(Mode::Pass);
        }
        release.await.unwrap().unwrap_or_else(|error| panic!("{cut:?}: {error}"));
        wait_until("the failure is told", async || failed.load(Ordering::SeqCst)).await.unwrap();
        proxy.set(Mode::Pass);
        for waiter in waiting {
            waiter.await.unwrap().unwrap_or_else(|error| panic!("{cut:?}: {error}"));
        }
        let entered = entered.lock().unwrap().clone();
        assert!(entered.is_sorted() && entered.iter().map(|(_, id)| *id).eq(0..4), "{cut:?}: {entered:?}");
        wait_until("nothing is left", async || server.keys() == [FENCE]).await.unwrap();
    }
}
