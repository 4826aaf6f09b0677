//! Sessions that have ended on our side alone. A request that is still on its way to one would be done there later, and the
//! server may not hear of the end before the ttl is over. So they are ended in the server too, over another connection.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::failure::AfterRequest;
use super::session_status::SessionStatus;

#[derive(Debug, Default)]
pub(super) struct LeftSessions {
    all: Mutex<Vec<Arc<SessionStatus>>>,
    news: Notify,
}

impl LeftSessions {
    pub(super) fn add(&self, session: &Arc<SessionStatus>) {
        let mut all = self.all();
        if session.mark.is_some() && !all.iter().any(|left| Arc::ptr_eq(left, session)) {
            all.push(session.clone());
            self.news.notify_one();
        }
    }

    /// Notes whether a session has ended, before anybody hears of the request by which it has.
    pub(super) fn note_end(&self, session: &Arc<SessionStatus>, after: AfterRequest) {
        match after {
            AfterRequest::KeepSession => return,
            AfterRequest::EndSession => self.add(session),
            AfterRequest::EndedByServer => session.ended_by_server.store(true, Ordering::Release),
            AfterRequest::EndConnection => {}
        }
        session.ended.send_replace(true);
    }

    /// Sessions that are not known to have ended in the server.
    pub(super) fn left(&self) -> Vec<Arc<SessionStatus>> {
        self.all().clone()
    }

    pub(super) fn remove(&self, session: &Arc<SessionStatus>) {
        self.all().retain(|left| !Arc::ptr_eq(left, session));
    }

    pub(super) async fn wait(&self) {
        self.news.notified().await;
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<SessionStatus>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
