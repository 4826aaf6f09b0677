//! The wait of one waiter: it joins the queue, takes the row in its turn, and gives the hold and the turn to its caller.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, ErrorKind, Result};
use dlock_store::{Seldom, line};

use crate::connection::answer::answered;
use crate::dialect::Dialect;
use crate::lease::attempt::acquire;
use crate::lease::queue::recent::Recent;
use crate::lease::queue::sessions::{QueueSessions, Reserved};
use crate::lease::queue::turn::Turn;
use crate::lease::queue::waiter::{HolderState, Outcome, Waiter};
use crate::tables::row::row_name;

/// The limit of the random pause after which the waiter with the turn reads the row again: it starts at the first value and
/// doubles up to the second. The waiter polls only while a holder without the turn has the row: the release of that holder
/// does not wake it, and may come at any moment.
const POLL_PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// The shortest pause between two looks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// A caller that has joined the queue before it asked for the row asks for it after half of its wait, and after this at the
/// latest: the session with the turn may be that of a process that stands still, and the row free.
const ROW_UNSEEN: Duration = Duration::from_secs(1);

/// Where a wait begins.
pub(crate) enum Start<D: Dialect> {
    /// Others have the lock: the waiter goes to the end of the queue.
    AtEnd(Reserved<D>),
    /// Nobody knows whether others have the lock: the waiter first tries to get the turn at once.
    IfEmpty(Reserved<D>),
    /// The waiter has the turn.
    AtHead(Box<Turn<D>>),
}

/// Waits until this waiter has the lock, or its time is over.
pub(crate) async fn wait_and_take<D: Dialect>(
    sessions: Arc<QueueSessions<D>>,
    waiter: Arc<Waiter>,
    start: Start<D>,
    recent: Arc<Recent>,
) -> Outcome {
    let row = row_name(&waiter.claim.key).name;
    match wait(&sessions, &waiter, start, &recent, &row).await {
        Ok(outcome) => outcome,
        // A failed wait is no error of the call. The caller asks by itself, and polls for a while.
        Err(error) => {
            match error.kind() {
                ErrorKind::Outage => {
                    line(move || tracing::debug!(%error, "a waiter of a lease row left its wait queue"));
                }
                // Each further wait would fail in the same way.
                _ => {
                    static TOLD: Seldom = Seldom::new();
                    TOLD.line(
                        error.to_string(),
                        move || tracing::warn!(%error, "waiters poll, because the server refuses their wait queue"),
                    );
                }
            }
            sessions.pause();
            Outcome::Ask
        }
    }
}

async fn wait<D: Dialect>(
    sessions: &Arc<QueueSessions<D>>,
    waiter: &Arc<Waiter>,
    start: Start<D>,
    recent: &Recent,
    row: &str,
) -> Result<Outcome> {
    let (session, is_behind) = match start {
        Start::AtHead(turn) => return take(turn, waiter, recent, row).await,
        Start::AtEnd(session) => (session, true),
        Start::IfEmpty(session) => (session, false),
    };
    let mut session = sessions.open_session(session).await?;
    let queue = session.queue_name(row);
    let is_at_once = !is_behind && session.try_turn(&queue).await?;
    if !is_at_once {
        if !is_behind {
            let now = sessions.context.clock.now();
            recent.note(row, now);
            let ask_by = now.after((waiter.until.since(now) / 2).min(ROW_UNSEEN));
            waiter.note_contended(HolderState { ask_by: Some(ask_by), ..HolderState::default() });
        }
        if !session.wait_for_turn(&queue, waiter.until).await? {
            sessions.put_back(session);
            return Ok(Outcome::Ask);
        }
    }
    let mut turn = Box::new(Turn::new(sessions.clone(), session, queue, row));
    turn.has_waited = !is_at_once;
    take(turn, waiter, recent, row).await
}

/// Takes the row in the waiter's turn. A holder without the turn may still have the row: it never waited, it has lost
/// its session, or its process has died and the lease runs. Then the waiter polls the row.
async fn take<D: Dialect>(mut turn: Box<Turn<D>>, waiter: &Arc<Waiter>, recent: &Recent, row: &str) -> Result<Outcome> {
    let (context, mut longest) = (turn.sessions.context.clone(), POLL_PAUSES.0);
    loop {
        let Some(taking) = waiter.begin_to_take(waiter.attempt_guard().await) else {
            turn.leave().await;
            return Ok(Outcome::Ask);
        };
        let attempt = answered(&context.clock, acquire(&mut turn.session.session, &waiter.claim)).await?;
        let wake = match attempt {
            Attempt::Acquired(hold) => return Ok(Outcome::Granted(turn.attach_to(hold))),
            Attempt::AlreadyRun => {
                drop(taking);
                turn.leave().await;
                return Ok(Outcome::Ask);
            }
            Attempt::Contended(wake) => wake,
        };
        drop(taking);
        let now = context.clock.now();
        recent.note(row, now);
        turn.has_waited = true;
        if now >= waiter.until {
            turn.leave().await;
            return Ok(Outcome::Ask);
        }
        let end = wake.ask_by.map_or(BootInstant::NEVER, |end| end.after(SHORTEST_PAUSE));
        waiter.note_contended(HolderState::of(wake));
        let pause = longest.mul_f64(fastrand::f64()).max(SHORTEST_PAUSE);
        longest = (longest * 2).min(POLL_PAUSES.1);
        context.clock.sleep_until(end.min(now.after(pause)).max(now.after(SHORTEST_PAUSE)).min(waiter.until)).await;
    }
}
