//! The requests to one lock: chooses the file that answers for its lock mode.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, Claim, Mode, Queue, Result, RunEnd, Wake};

use sqlx::sqlite::SqliteConnection;

use crate::connection::FileConnection;
use crate::context::StoreContext;
use crate::fault::is_bound_reached;
use crate::request::{Granted, LockRequest, nanos};
use crate::time::Time;
use crate::wakes::wake_of;
use crate::{exclusive, runs, schema, shares};

/// When a caller asks again that has left the key to another process.
const GIVEN_WAY: Duration = Duration::from_millis(5);

/// One attempt. A waiter listens from before it, so that no release falls in between.
pub(super) async fn acquire(
    connection: &mut FileConnection,
    context: &StoreContext,
    claim: &Arc<Claim>,
    queue: Queue,
) -> Result<Attempt> {
    let waits = matches!(queue, Queue::Join { .. });
    let takes_turns = waits && claim.mode == Mode::Exclusive;
    if takes_turns && context.wakes.gives_way(&claim.key, context.time.clock().now()).await {
        let soon = context.time.clock().now().after(GIVEN_WAY.mul_f64(0.5 + fastrand::f64()));
        return Ok(Attempt::Contended(Wake::poll().ask_by(soon)));
    }
    let mut news = if waits { context.wakes.listen(&claim.key) } else { None };
    let mut answer = attempt(connection, context, claim, queue).await?;
    if waits && news.is_none() && matches!(answer, Attempt::Contended(_)) {
        news = context.wakes.watch(&claim.key).await;
        if news.is_some() {
            // The lock may have been freed before the kernel watched.
            answer = attempt(connection, context, claim, queue).await?;
        }
    }
    if takes_turns && !matches!(answer, Attempt::AlreadyRun) {
        let is_held = matches!(answer, Attempt::Acquired(_));
        context.wakes.answered(&claim.key, is_held, context.time.clock().now()).await;
    }
    match answer {
        Attempt::Contended(wake) => Ok(Attempt::Contended(wake_of(wake, news, queue, context.time.clock().now()))),
        answer => Ok(answer),
    }
}

async fn attempt(
    connection: &mut FileConnection,
    context: &StoreContext,
    claim: &Arc<Claim>,
    queue: Queue,
) -> Result<Attempt> {
    let time = &context.time;
    let request = LockRequest::new(claim, time)?;
    let answer = match ask(connection.conn(), &request, time).await {
        Err(error) if is_bound_reached(&error) => {
            schema::reserve(connection.conn(), time).await.map_err(|error| connection.fault(error))?;
            ask(connection.conn(), &request, time).await
        }
        answer => answer,
    };
    if let Some(granted) = answer.map_err(|error| connection.fault(error))? {
        return request.acquired(granted);
    }
    match (claim.mode, claim.once_per.as_deref()) {
        (Mode::Exclusive, None) => exclusive::refused(connection, &request).await,
        (Mode::Exclusive, Some(once)) => runs::refused(connection, &request, *once).await,
        _ => shares::refused(connection, &request, queue).await,
    }
}

/// Asks once, in one statement, by the mode of the claim.
async fn ask(conn: &mut SqliteConnection, request: &LockRequest<'_>, time: &Time) -> sqlx::Result<Option<Granted>> {
    match (request.claim.mode, request.claim.once_per.as_deref()) {
        (Mode::Exclusive, None) => exclusive::ask(conn, request).await,
        (Mode::Exclusive, Some(once)) => runs::ask(conn, request, time, *once).await,
        _ => shares::ask(conn, request).await,
    }
}

pub(super) async fn free(connection: &mut FileConnection, context: &StoreContext, claim: &Claim) -> Result<bool> {
    match claim.mode {
        Mode::Exclusive => exclusive::free(connection, claim).await,
        _ => shares::free(connection, claim, context.time.boot(), context.time.now()?).await,
    }
}

pub(super) async fn finish(
    connection: &mut FileConnection,
    context: &StoreContext,
    claim: &Claim,
    keep: Option<Duration>,
    run: Option<RunEnd>,
) -> Result<bool> {
    let time = &context.time;
    let now = time.now()?;
    let keep = keep.map(|keep| now.stored.saturating_add(nanos(keep)));
    let is_exclusive = claim.mode == Mode::Exclusive;
    if let (Some(RunEnd::Succeeded { took }), None, true) = (run, claim.once_per.as_deref(), is_exclusive) {
        runs::record(connection, time, claim, took).await?;
    }
    match (run.filter(|_| claim.once_per.is_some()), keep) {
        (None, None) => free(connection, context, claim).await,
        (Some(run), keep) => runs::end(connection, time, claim, run, keep).await,
        (None, Some(until)) if is_exclusive => exclusive::keep(connection, claim, until).await,
        (None, Some(until)) => shares::keep(connection, claim, time.boot(), now, until).await,
    }
}

pub(super) async fn give_up(connection: &mut FileConnection, context: &StoreContext, claim: &Claim) -> Result<()> {
    context.wakes.waits_no_more(&claim.key);
    if claim.mode == Mode::Write {
        shares::wait_no_more(connection, claim).await?;
    }
    if let Some(once) = claim.once_per.as_deref() {
        runs::give_back(connection, claim, *once).await?;
    }
    free(connection, context, claim).await.map(drop)
}
