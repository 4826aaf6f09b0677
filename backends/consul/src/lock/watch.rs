//! Reports to holds that their sessions have ended, by one blocking query for all holds of the store.
//!
//! The query lists the sessions of the store's node. It runs only while a hold listens. A missing session is a hint: the answer to a renewal decides.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;
use dlock_store::{Clock, background};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::api::session;
use crate::server::http::Http;

/// How long one query waits for a change.
const QUERY_TIME: Duration = Duration::from_secs(30);

/// The pause between two queries. Each lock creates a session, so the list changes all the time.
const QUERY_PAUSE: Duration = Duration::from_millis(100);

/// The pause after a failed query.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The transfer of lists may take at most one tenth of the time, so the pause is at least ten times as long.
const PAUSE_FACTOR: u32 = 10;

/// The listeners of a store, and the query that serves them.
pub(crate) struct Watch {
    http: Arc<Http>,
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    all: Vec<Listener>,
    is_running: bool,
}

struct Listener {
    session: String,
    sender: oneshot::Sender<()>,
    since: BootInstant,
    /// Whether a list has contained the session.
    was_seen: bool,
}

impl Watch {
    pub(crate) fn new(http: &Arc<Http>) -> Self {
        Self { http: http.clone(), listeners: Mutex::default() }
    }

    /// A future that ends when the session may have ended.
    pub(crate) fn listen(self: &Arc<Self>, session: String) -> Option<BoxFuture<'static, ()>> {
        let (sender, ended) = oneshot::channel();
        let since = self.http.clock().now();
        let mut listeners = self.listeners();
        listeners.all.push(Listener { session, sender, since, was_seen: false });
        if !std::mem::replace(&mut listeners.is_running, true) {
            let watch = self.clone();
            background().ok()?.spawn(async move { watch.run().await });
        }
        Some(Box::pin(async move {
            // The sender is dropped only after it was used.
            let _ = ended.await;
        }))
    }

    async fn run(&self) {
        let clock: &Clock = self.http.clock();
        let mut index = None;
        while self.drop_closed_listeners() {
            let asked = clock.now();
            let pause = match session::list(&self.http, index).await {
                Ok(seen) => {
                    // The answer begins to come when something has changed, so its transfer is the least of this time.
                    let began = clock.now();
                    self.compare(&seen.found, asked);
                    // If the index went back, the state is another one, and the next query must not wait.
                    let goes_on = index.is_none_or(|(before, _)| seen.index >= before);
                    index = Some((seen.index, QUERY_TIME)).filter(|_| goes_on && seen.index > 0);
                    QUERY_PAUSE.max(clock.now().since(began) * PAUSE_FACTOR)
                }
                Err(_) => {
                    index = None;
                    PAUSE_AFTER_FAILURE
                }
            };
            clock.sleep_until(clock.now().after(pause.mul_f64(1.0 + fastrand::f64() / 4.0))).await;
        }
    }

    /// Informs the listeners whose session is not in the list any more.
    fn compare(&self, living: &HashSet<String>, asked: BootInstant) {
        let mut listeners = self.listeners();
        for listener in std::mem::take(&mut listeners.all) {
            let lives = living.contains(&listener.session);
            // A session that was created after the query left may be missing from the answer.
            if !lives && (listener.was_seen || listener.since < asked) {
                let _ = listener.sender.send(());
            } else {
                listeners.all.push(Listener { was_seen: listener.was_seen || lives, ..listener });
            }
        }
    }

    fn drop_closed_listeners(&self) -> bool {
        let mut listeners = self.listeners();
        listeners.all.retain(|listener| !listener.sender.is_closed());
        listeners.is_running = !listeners.all.is_empty();
        listeners.is_running
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
