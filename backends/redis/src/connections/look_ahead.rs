//! Sends the look at a server's history ahead of a request.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::redis::Value;
use dlock_contract::BootInstant;
use futures::FutureExt;
use tokio::sync::oneshot;

use crate::combine::combiner::Ahead;
use crate::connections::connection::{Connection, Way};
use crate::connections::looks::{Latest, Look};
use crate::connections::pool::Connections;
use crate::quarantine::history::{History, REPLICATION};
use crate::reply::read::is_forbidden;
use crate::scripts::call::words;

impl Connections {
    /// The look that a request has to wait for, if there is one, and what to send ahead of the request if it is to take the
    /// look along.
    pub(crate) fn look_ahead(&self, connection: &Arc<Connection>, now: BootInstant) -> (Option<Look>, Option<Ahead>) {
        let is_server = matches!(connection.way, Way::Server(_));
        if !connection.looked.is_due(now) || !is_server || !self.quarantine.rules.follow_history() {
            return (None, None);
        }
        let mut latest = connection.looked.latest();
        if let Some(look) = &latest.look
            && connection.looked.done.load(Ordering::Acquire) != latest.number
        {
            return (Some(look.clone()), None);
        }
        let (sender, receiver) = oneshot::channel();
        let (number, look) = (latest.number + 1, receiver.shared());
        *latest = Latest { number, look: Some(look.clone()) };
        let (quarantine, clock) = (self.quarantine.clone(), self.clock.clone());
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
                            quarantine.heard(history, clock.now());
                            now.as_nanos()
                        }
                        Some(_) => {
                            // The server is a replica now. The next connection finds the primary, which may be this
                            // server again.
                            connection.stale.add(&connection.named);
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
            let _ = sender.send(());
        };
        (Some(look), Some(Ahead { command: words(REPLICATION), then: Box::new(then) }))
    }
}
