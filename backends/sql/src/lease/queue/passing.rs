//! The end of a hold with a turn: its row is freed, or passed on to a caller that waits in this process.
//!
//! It runs over the session with the turn, in the runtime that drives the session. The session leaves the queue after
//! the server has the row's release on its disk: with an earlier turn, the next waiter would find the row taken.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Origin, Released, Result};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::connection::answer::answered;
use crate::dialect::Dialect;
use crate::lease::queue::sessions::{QueueSessions, Reserved};
use crate::lease::queue::turn::Turn;
use crate::lease::queue::wait::Start;
use crate::lease::queue::wait_queue::WaitQueue;
use crate::lease::queue::work::Work;
use crate::lease::{attempt, ending};

/// The time limit for a session of another runtime than the releaser's, which may be blocked.
const OTHER_RUNTIME_LIMIT: Duration = Duration::from_secs(1);

/// The answer of a release that also asks for the next caller.
type Passed = (Released, Option<Attempt>);

/// Frees the row, then leaves the queue. `None`: the session ended before it answered, so nothing is known.
pub(crate) async fn release<D: Dialect>(mut turn: Box<Turn<D>>, claim: &Arc<Claim>) -> Option<Result<Released>> {
    let claim = claim.clone();
    run(turn.sessions.clone(), move |sender| {
        Box::pin(async move {
            let session = &mut turn.session.session;
            let released = answered(&session.context.clock.clone(), ending::release(session, &claim)).await;
            let released = known(released, session.broken);
            // Before the answer: the caller may ask for the row again at once.
            let leaves = turn.leave();
            let _ = sender.send(released);
            leaves.await;
        })
    })
    .await
}

/// Passes the row on to the next caller of this process. After the last hold of a turn, or if the lock was lost, the
/// next caller waits behind the waiters in the queue. `None`: the session ended before it answered, so nothing is
/// known.
pub(crate) async fn pass<D: Dialect>(
    queue: &Arc<WaitQueue<D>>,
    mut turn: Box<Turn<D>>,
    holder: &Arc<Claim>,
    next: &Arc<Claim>,
    until: BootInstant,
) -> Option<Result<Passed>> {
    let (queue, holder, next) = (queue.clone(), holder.clone(), next.clone());
    let pending_attempt = queue.pending_attempt(next.owner);
    run(turn.sessions.clone(), move |sender| {
        Box::pin(async move {
            let (sessions, may_hold_again) = (turn.sessions.clone(), turn.may_hold_again());
            let (context, session) = (sessions.context.clone(), &mut turn.session.session);
            let (released, start) = if may_hold_again {
                match answered(&context.clock, attempt::pass(session, &holder, &next)).await {
                    Ok(Some(hold)) => {
                        let passed = (Released::Released, Some(Attempt::Acquired(turn.attach_to(hold))));
                        // If nobody hears of it, the engine abandons the claim.
                        let _ = sender.send(Some(Ok(passed)));
                        return;
                    }
                    Ok(None) => (Released::NotOwner, Some(Start::AtHead(turn))),
                    Err(error) => {
                        let _ = sender.send(known(Err(error), session.broken));
                        return;
                    }
                }
            } else {
                match answered(&context.clock, ending::release(session, &holder)).await {
                    Ok(released) => {
                        let left = turn.leave_with_session().await.map(|session| Reserved::Used(Box::new(session)));
                        (released, left.or_else(|| sessions.reserve().ok()).map(Start::IfEmpty))
                    }
                    Err(error) => {
                        let _ = sender.send(known(Err(error), session.broken));
                        return;
                    }
                }
            };
            let Some(start) = start else {
                let _ = sender.send(Some(Ok((released, None))));
                return;
            };
            let answer = queue.begin(&sessions, &next, until, start, Some(pending_attempt)).answer().await;
            let _ = sender.send(Some(Ok((released, answer.for_next()))));
        })
    })
    .await
}

/// The answer of a session. `None` if it has ended.
fn known<T>(answer: Result<T>, is_broken: bool) -> Option<Result<T>> {
    if answer.is_err() && is_broken { None } else { Some(answer) }
}

/// Runs work with a session in the runtime that drives it. It goes on if nobody waits for its answer.
async fn run<D: Dialect, T: Send + 'static>(
    sessions: Arc<QueueSessions<D>>,
    work: impl FnOnce(oneshot::Sender<Option<T>>) -> BoxFuture<'static, ()>,
) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    let running = Arc::new(Work::default());
    running.begin(&sessions.runtime, work(sender));
    if Origin::here() == Some(sessions.runtime.origin()) {
        return receiver.await.ok().flatten();
    }
    let clock = &sessions.context.clock;
    match clock.timeout_at(clock.now().after(OTHER_RUNTIME_LIMIT), receiver).await {
        Some(answer) => answer.ok().flatten(),
        None => {
            // This closes the session, and the server gives the turn to the next waiter.
            running.stop();
            None
        }
    }
}
