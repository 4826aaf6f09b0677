//! The wait of one waiter: it enters the room, takes the row, and gives both to its caller.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::engine::line;
use dlock_contract::{Attempt, BootInstant, ErrorKind, Result};

use crate::dialect::Dialect;
use crate::lease::attempt::acquire;
use crate::lease::room::recent::Recent;
use crate::lease::room::sessions::{RoomSessions, Seat, bounded};
use crate::lease::room::visit::Inside;
use crate::lease::room::waiter::{Outcome, Told, Waiter};
use crate::tables::row::row_name;

/// The longest pause between two looks of the first waiter, behind a holder that is not in the room: first and last. The
/// holder may be about to release.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// There is always a pause between two looks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Where a wait begins.
pub(crate) enum Begin<D: Dialect> {
    /// Others have the lock: the waiter goes to the end of the line.
    Behind(Seat<D>),
    /// Nobody knows whether others have the lock: first it looks whether the room is empty.
    Perhaps(Seat<D>),
    /// It is in the room.
    Inside(Box<Inside<D>>),
}

/// Waits until the lock is this waiter's, or its time is over.
pub(crate) async fn stand<D: Dialect>(
    sessions: Arc<RoomSessions<D>>,
    waiter: Arc<Waiter>,
    begin: Begin<D>,
    recent: Arc<Recent>,
) -> Outcome {
    let row = row_name(&waiter.claim.key).name;
    match wait(&sessions, &waiter, begin, &recent, &row).await {
        Ok(outcome) => outcome,
        // Not an error of the call: the caller asks by itself, and polls for a while.
        Err(error) => {
            match error.kind() {
                ErrorKind::Outage => {
                    line(move || tracing::debug!(%error, "a waiter of a lease row left its waiting room"));
                }
                // It comes again at each wait.
                _ => {
                    line(move || tracing::warn!(%error, "waiters poll, because the server refuses their waiting room"))
                }
            }
            sessions.close_for_a_while();
            Outcome::Ask
        }
    }
}

async fn wait<D: Dialect>(
    sessions: &Arc<RoomSessions<D>>,
    waiter: &Arc<Waiter>,
    begin: Begin<D>,
    recent: &Recent,
    row: &str,
) -> Result<Outcome> {
    let (seat, is_surely_behind) = match begin {
        Begin::Inside(inside) => return take(inside, waiter, recent, row).await,
        Begin::Behind(seat) => (seat, true),
        Begin::Perhaps(seat) => (seat, false),
    };
    let mut session = sessions.sit(seat).await?;
    let room = session.room(row);
    let is_at_once = !is_surely_behind && session.try_to_enter(&room).await?;
    if !is_at_once {
        if !is_surely_behind {
            recent.note(row, sessions.context.clock.now());
            waiter.note_contended(Told::default());
        }
        if !session.enter_by(&room, waiter.until).await? {
            sessions.put_back(session);
            return Ok(Outcome::Ask);
        }
    }
    let mut inside = Box::new(Inside::new(sessions.clone(), session, room, row));
    inside.has_waited = !is_at_once;
    take(inside, waiter, recent, row).await
}

/// Takes the row, in the room. The row may still be held by somebody who is not in the room: a holder that never waited, one
/// that has lost its session, or one whose lease has not ended yet. Then it is polled.
async fn take<D: Dialect>(
    mut inside: Box<Inside<D>>,
    waiter: &Arc<Waiter>,
    recent: &Recent,
    row: &str,
) -> Result<Outcome> {
    let (context, mut longest) = (inside.sessions.context.clone(), PAUSES.0);
    loop {
        let Some(taking) = waiter.begin_to_take(waiter.row_turn().await) else {
            inside.leave().await;
            return Ok(Outcome::Ask);
        };
        let attempt = bounded(&context, acquire(&mut inside.session.session, &waiter.claim)).await?;
        let wake = match attempt {
            Attempt::Acquired(hold) => return Ok(Outcome::Granted(inside.lends(hold))),
            Attempt::AlreadyRun => {
                drop(taking);
                inside.leave().await;
                return Ok(Outcome::Ask);
            }
            Attempt::Contended(wake) => wake,
        };
        drop(taking);
        let now = context.clock.now();
        recent.note(row, now);
        inside.has_waited = true;
        if now >= waiter.until {
            inside.leave().await;
            return Ok(Outcome::Ask);
        }
        let end = wake.ask_by.map_or(BootInstant::NEVER, |end| end.after(SHORTEST_PAUSE));
        waiter.note_contended(Told::of(wake));
        let pause = longest.mul_f64(fastrand::f64()).max(SHORTEST_PAUSE);
        longest = (longest * 2).min(PAUSES.1);
        context.clock.sleep_until(end.min(now.after(pause)).max(now.after(SHORTEST_PAUSE)).min(waiter.until)).await;
    }
}
