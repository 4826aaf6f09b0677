//! The end of a hold that came out of a room: its row is freed, or passed on to a caller that waits in this process.
//!
//! It runs over the session in the room, in the runtime that drives it. The room is left after the server has the row's
//! release on its disk: a waiter that entered earlier would find the row taken.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Origin, Released, Result};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::dialect::Dialect;
use crate::lease::room::sessions::{RoomSessions, Seat, bounded};
use crate::lease::room::stand::Begin;
use crate::lease::room::visit::Inside;
use crate::lease::room::waiting_room::WaitingRoom;
use crate::lease::room::work::Work;
use crate::lease::{attempt, ending};

/// How long another runtime may take, from which the release does not come. It may stand still.
const ELSEWHERE: Duration = Duration::from_secs(1);

/// The answer of a release that also asks for the next caller.
type Passed = (Released, Option<Attempt>);

/// Frees the row, then leaves the room. `None`: the session ended before it answered, so nothing is known.
pub(crate) async fn release<D: Dialect>(mut inside: Box<Inside<D>>, claim: &Arc<Claim>) -> Option<Result<Released>> {
    let claim = claim.clone();
    run(inside.sessions.clone(), move |sender| {
        Box::pin(async move {
            let session = &mut inside.session.session;
            let released = bounded(&session.context.clone(), ending::release(session, &claim)).await;
            let released = known(released, session.broken);
            // Before the answer: the caller may ask for the row again at once.
            let leaves = inside.leave();
            let _ = sender.send(released);
            leaves.await;
        })
    })
    .await
}

/// Passes the row on to the next caller of this process. After so many holds, or if the lock was lost, the next caller waits
/// behind those who stand in the room. `None`: the session ended before it answered, so nothing is known.
pub(crate) async fn pass<D: Dialect>(
    room: &Arc<WaitingRoom<D>>,
    mut inside: Box<Inside<D>>,
    holder: &Arc<Claim>,
    next: &Arc<Claim>,
    until: BootInstant,
) -> Option<Result<Passed>> {
    let (room, holder, next) = (room.clone(), holder.clone(), next.clone());
    let pending_attempt = room.pending_attempt(next.owner);
    run(inside.sessions.clone(), move |sender| {
        Box::pin(async move {
            let (sessions, may_go_on) = (inside.sessions.clone(), inside.may_go_on());
            let (context, session) = (sessions.context.clone(), &mut inside.session.session);
            let (released, begin) = if may_go_on {
                match bounded(&context, attempt::pass(session, &holder, &next)).await {
                    Ok(Some(hold)) => {
                        let passed = (Released::Released, Some(Attempt::Acquired(inside.lends(hold))));
                        // If nobody hears of it, the engine abandons the claim.
                        let _ = sender.send(Some(Ok(passed)));
                        return;
                    }
                    Ok(None) => (Released::NotOwner, Some(Begin::Inside(inside))),
                    Err(error) => {
                        let _ = sender.send(known(Err(error), session.broken));
                        return;
                    }
                }
            } else {
                match bounded(&context, ending::release(session, &holder)).await {
                    Ok(released) => {
                        let left = inside.leave_with_session().await.map(|session| Seat::Used(Box::new(session)));
                        (released, left.or_else(|| sessions.seat().ok()).map(Begin::Perhaps))
                    }
                    Err(error) => {
                        let _ = sender.send(known(Err(error), session.broken));
                        return;
                    }
                }
            };
            let Some(begin) = begin else {
                let _ = sender.send(Some(Ok((released, None))));
                return;
            };
            let answer = room.begin(&sessions, &next, until, begin, Some(pending_attempt)).answer().await;
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
    sessions: Arc<RoomSessions<D>>,
    work: impl FnOnce(oneshot::Sender<Option<T>>) -> BoxFuture<'static, ()>,
) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    let running = Arc::new(Work::default());
    running.begin(&sessions.place, work(sender));
    if Origin::here() == Some(sessions.place.origin()) {
        return receiver.await.ok().flatten();
    }
    let clock = &sessions.context.clock;
    match clock.timeout_at(clock.now().after(ELSEWHERE), receiver).await {
        Some(answer) => answer.ok().flatten(),
        None => {
            // That closes the session, and the server frees the room.
            running.stop();
            None
        }
    }
}
