//! A look at the server's history, sent ahead of a request over a connection that was not looked at lately.
//!
//! A primary that becomes a replica keeps its connections open, and so does a replica that is promoted. A client that sends
//! nothing meanwhile would not notice. The look costs no round trip: it leaves with the request, in one go, and the request's
//! answer counts once that of the look is known.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::Value;
use dlock_contract::BootInstant;
use futures::FutureExt;
use futures::future::Shared;
use tokio::sync::oneshot;

use super::super::check::is_forbidden;
use super::super::combine::Ahead;
use super::super::guards::{History, REPLICATION};
use super::{Connection, Connections, Way, words};

/// The next request after so long takes a look along. A server that was a replica for less than that may go unseen.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Ends when the answer to a look has been noted.
pub(super) type Look = Shared<oneshot::Receiver<()>>;

/// When a connection was looked at.
#[derive(Default)]
pub(super) struct Looked {
    /// When the last look left that was answered, in nanoseconds; the highest number where the account may not look.
    last: AtomicU64,
    latest: Mutex<Latest>,
    /// Which look was answered last, or failed.
    done: AtomicU64,
}

/// The look that was sent last, if there was one.
#[derive(Default)]
struct Latest {
    number: u64,
    look: Option<Look>,
}

impl Looked {
    pub(super) fn at(now: BootInstant) -> Self {
        Self { last: AtomicU64::new(now.as_nanos()), ..Self::default() }
    }

    fn is_due(&self, now: BootInstant) -> bool {
        let last = BootInstant::from_nanos(self.last.load(Ordering::Acquire));
        now.since(last) >= LOOK_AFTER
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    /// The look that a request has to wait for, if there is one, and what to send ahead of the request if it is to take the
    /// look along.
    pub(super) fn look_ahead(&self, connection: &Arc<Connection>, now: BootInstant) -> (Option<Look>, Option<Ahead>) {
        let is_server = matches!(connection.way, Way::Server(_));
        if !connection.looked.is_due(now) || !is_server || !self.guards.follow_history() {
            return (None, None);
        }
        let mut latest = connection.looked.latest();
        if let Some(look) = &latest.look
            && connection.looked.done.load(Ordering::Acquire) != latest.number
        {
            return (Some(look.clone()), None);
        }
        let (tell, told) = oneshot::channel();
        let (number, look) = (latest.number + 1, told.shared());
        *latest = Latest { number, look: Some(look.clone()) };
        let (guards, clock, place) = (self.guards.clone(), self.clock.clone(), format!("{:?}", self.target));
        // Weak: the look keeps no connection open.
        let looked_at = Arc::downgrade(connection);
        let then = move |answer: Option<Value>| {
            let Some(connection) = looked_at.upgrade() else { return };
            let looked = &connection.looked;
            match &answer {
                // Busy or loading. The next request asks again.
                Some(answer @ Value::ServerError(_)) if !is_forbidden(answer) => {}
                Some(answer) => {
                    let last = match History::read(answer) {
                        Some(history) if history.is_primary => {
                            guards.heard(history, clock.now(), &place);
                            now.as_nanos()
                        }
                        Some(_) => {
                            // The next connection finds the primary, or this server when it is one again.
                            connection.left.add(&connection.named);
                            connection.dead.store(true, Ordering::Relaxed);
                            now.as_nanos()
                        }
                        // The account may not look.
                        None => u64::MAX,
                    };
                    looked.last.store(last, Ordering::Release);
                }
                // The connection has ended. The next one is looked at when it is opened.
                None => {}
            }
            looked.done.store(number, Ordering::Release);
            let _ = tell.send(());
        };
        (Some(look), Some(Ahead { command: words(REPLICATION), then: Box::new(then) }))
    }
}
