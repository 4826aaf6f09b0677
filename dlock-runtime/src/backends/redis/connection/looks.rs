//! A look at the server's history, sent ahead of a request over a connection that was not looked at lately.
//!
//! A primary that becomes a replica keeps its connections open, and so does a replica that is promoted. A client that sends
//! nothing meanwhile would not notice. The look costs no round trip: it leaves with the request, whose answer counts once
//! that of the look is known.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::Value;
use futures::FutureExt;
use futures::future::Shared;
use tokio::sync::oneshot;

use super::super::guards::{History, REPLICATION};
use super::{Connection, Connections, Way, words};
use crate::backends::redis::check::is_forbidden;
use crate::clock::BootInstant;
use crate::error::Result;

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
    /// Sends a look, if one is due; or finds the one that is under way, which concerns this request as well.
    pub(super) fn look_ahead(&self, connection: &Arc<Connection>, now: BootInstant) -> Option<Look> {
        if !connection.looked.is_due(now) || !self.guards.follow_history() {
            return None;
        }
        let Way::Server(way) = &connection.way else { return None };
        // Kept until the look has left, so that no request that counts on it overtakes it.
        let mut latest = connection.looked.latest();
        if let Some(look) = &latest.look
            && connection.looked.done.load(Ordering::Acquire) != latest.number
        {
            return Some(look.clone());
        }
        let (tell, told) = oneshot::channel();
        let (number, look) = (latest.number + 1, told.shared());
        *latest = Latest { number, look: Some(look.clone()) };
        let (guards, clock, place) = (self.guards.clone(), self.clock.clone(), format!("{:?}", self.target));
        // Weak: the look keeps no connection open.
        let looked_at = Arc::downgrade(connection);
        way.ahead(words(REPLICATION), move |answer: Result<Value>| {
            let Some(connection) = looked_at.upgrade() else { return };
            let looked = &connection.looked;
            match &answer {
                // Busy or loading. The next request asks again.
                Ok(answer @ Value::ServerError(_)) if !is_forbidden(answer) => {}
                Ok(answer) => {
                    let last = match History::read(answer) {
                        Some(history) if history.is_primary => {
                            guards.heard(history, clock.now(), &place);
                            now.as_nanos()
                        }
                        Some(_) => {
                            // The next connection finds the primary, or this server when it is one again.
                            connection.dead.store(true, Ordering::Relaxed);
                            now.as_nanos()
                        }
                        // The account may not look.
                        None => u64::MAX,
                    };
                    looked.last.store(last, Ordering::Release);
                }
                // The connection has ended. The next one is looked at when it is opened.
                Err(_) => {}
            }
            looked.done.store(number, Ordering::Release);
            let _ = tell.send(());
        });
        Some(look)
    }
}
