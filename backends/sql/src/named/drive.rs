//! The task that drives a session: it runs requests one after another.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_contract::BootInstant;
use futures::future::BoxFuture;

use super::context::NamedContext;
use super::dialect::NamedDialect;
use super::driver::Jobs;
use super::failure::AfterRequest;
use super::session_status::SessionStatus;
use crate::connection::answer::ANSWER_LIMIT;
use crate::dialect::Dialect;

/// How long a goodbye may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest time for which a session without a lock is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// If a session that has only locks to free does not answer for this long, it is ended, which frees them. The engine
/// waits as long for a release.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a silent session is looked at.
const RECHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Runs the requests of a session, one after another, until it ends or nobody needs it.
pub(super) async fn drive<D: NamedDialect>(
    context: Arc<NamedContext<D>>,
    mut conn: D::Conn,
    shared: Arc<SessionStatus>,
    jobs: Arc<Jobs<SessionJob<D>>>,
) {
    let end = End { shared: shared.clone(), jobs: jobs.clone() };
    let (mut ended, idle) = (shared.ended.subscribe(), IDLE_TIMEOUT.min(shared.ttl / 2));
    let is_clean = tokio::select! {
        biased;
        () = async {
            let _ = ended.wait_for(|ended| *ended).await;
            // Before the request under way is dropped, whose abandon waits for that.
            context.left_sessions.add(&shared);
        } => false,
        is_clean = async {
            loop {
                match context.clock.timeout_at(context.clock.now().after(idle), poll_fn(|_| jobs.next())).await {
                    Some(Some(job)) => {
                        // After so much silence the server has ended it too. A statement may wait for a row for longer than a short ttl.
                        let begun = context.clock.now();
                        let until = begun.after(job.wait + shared.ttl.max(ANSWER_LIMIT));
                        shared.note_due(Some(begun.after(job.wait + ANSWER_LIMIT)));
                        let request = (job.request)(&context, &mut conn);
                        let done = answered(&context, &shared, (begun.after(job.wait), until), request).await;
                        shared.note_due(None);
                        shared.queued.fetch_sub(1, Ordering::Relaxed);
                        let Some((after, tell)) = done else { return false };
                        context.left_sessions.note_end(&shared, after);
                        tell();
                        if after != AfterRequest::KeepSession {
                            return false;
                        }
                    }
                    Some(None) => return true,
                    None if shared.closes() => return true,
                    None => {}
                }
            }
        } => is_clean,
    };
    drop(end);
    if is_clean {
        let _ = context.clock.timeout_at(context.clock.now().after(CLOSE_TIMEOUT), context.dialect.close(conn)).await;
    }
}

/// The answer to a request. `None`: the server did not answer in time. A release has less time.
async fn answered<T, D: NamedDialect>(
    context: &NamedContext<D>,
    shared: &Arc<SessionStatus>,
    (asked, until): (BootInstant, BootInstant),
    request: impl Future<Output = T>,
) -> Option<T> {
    let (clock, mut request) = (&context.clock, pin!(request));
    let mut look = asked.after(RELEASE_TIMEOUT).min(until);
    loop {
        if let Some(done) = clock.timeout_at(look, request.as_mut()).await {
            return Some(done);
        }
        if look >= until || shared.only_releases_for(RELEASE_TIMEOUT) {
            shared.note_silence();
            context.left_sessions.add(shared);
            return None;
        }
        look = clock.now().after(RECHECK_INTERVAL).min(until);
    }
}

/// Reports the end of the session when it is dropped, also if the session's task fails.
struct End<D: NamedDialect> {
    shared: Arc<SessionStatus>,
    jobs: Arc<Jobs<SessionJob<D>>>,
}

impl<D: NamedDialect> Drop for End<D> {
    fn drop(&mut self) {
        self.shared.ended.send_replace(true);
        self.jobs.end();
    }
}

pub(super) type SessionRequest<D> = Box<
    dyn for<'a> FnOnce(&'a NamedContext<D>, &'a mut <D as Dialect>::Conn) -> BoxFuture<'a, (AfterRequest, Tell)> + Send,
>;

/// Tells the caller. It is called when the session has noted the end of the request, so that the caller's next one finds an idle
/// session.
pub(super) type Tell = Box<dyn FnOnce() + Send>;

pub(super) struct SessionJob<D: NamedDialect> {
    pub(super) request: SessionRequest<D>,
    /// For how long it may wait for a lock.
    pub(super) wait: Duration,
}
