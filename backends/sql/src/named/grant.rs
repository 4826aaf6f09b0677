//! One request for a lock: the server grants it, and a token is drawn under it.

use std::time::Duration;

use dlock_contract::{BootInstant, Claim, Error, ErrorKind, HoldId, Mode, Result};

use super::context::{Lock, NamedContext};
use super::dialect::{NamedAnswer, NamedAsk, NamedDialect, NamedDrawn, NamedWait, SessionId};
use super::failure::{AfterRequest, Ended, Failure};
use super::requests::{judged, run};
use crate::dialect::{Answer, Cell, Refusal, Value};
use crate::tables::numbers::MOST_TOKEN;
use crate::tables::row::corrupt;
use crate::tables::words::Statement;

/// A token, and since when the lock is held; `None` if somebody else has it. A token may be none of ours.
type Granted = Option<(Result<u64>, BootInstant)>;

/// How long a waiter that was granted the lock may take to say that it is there. The server may grant it to one whose host is
/// silent, and would keep it for each of them as long as the ttl.
const SILENCE_AFTER_WAIT: Duration = Duration::from_secs(2);

/// Asks for a lock, and waits for it that long. If anything fails once it is granted, it is freed again.
pub(super) async fn ask<D: NamedDialect>(
    context: &NamedContext<D>,
    conn: &mut D::Conn,
    session: SessionId,
    claim: &Claim,
    lock: &Lock,
    wait: Duration,
) -> Ended<Granted> {
    let (hold, mode) = (HoldId::of(&claim.owner).to_string(), claim.mode);
    let values = values_of(session, claim, lock, &hold);
    if wait.is_zero()
        && let Some(take) = context.statements.take(mode).filter(|_| context.dialect.takes_at_once(&lock.name))
    {
        let answer = ask_at_once(context, conn, session, (lock, mode), (take, &values)).await;
        return refused_by_family(context, conn, (lock, mode), answer).await;
    }
    let asked = context.clock.now();
    if wait.is_zero()
        && let Some(stamp) = &context.statements.stamp_if_granted
    {
        let ask = NamedAsk { lock: &lock.name, frees_first: false, stamp, values: &values[..6] };
        return match context.dialect.lock_and_draw(conn, session, ask).await {
            Ok((Some(NamedAnswer::Granted), token)) => match kept_or_drawn(context, conn, token, &values).await {
                Ok(token) => (Ok(Some((checked(token), asked))), AfterRequest::KeepSession),
                Err(error) => freed(context, conn, (lock, mode), error).await,
            },
            Ok((None | Some(NamedAnswer::Taken), _)) => (Ok(None), AfterRequest::KeepSession),
            Ok((Some(NamedAnswer::Interrupted), _)) => (Err(Failure::interrupted()), AfterRequest::KeepSession),
            Ok((Some(NamedAnswer::Elsewhere), _)) => (Err(Failure::elsewhere()), AfterRequest::EndConnection),
            Err(error) => freed(context, conn, (lock, mode), error).await,
        };
    }
    let silence = SILENCE_AFTER_WAIT.min(claim.ttl);
    let asked_for = NamedWait { time: wait, silence };
    let answer = context.dialect.lock(conn, session, (&lock.name, mode), asked_for).await;
    let mut since = asked;
    if !wait.is_zero() {
        // After a wait the server counts the silence anew: it has the session when it answers this.
        since = context.clock.now();
        match answer {
            Ok(_) => {
                if let Err(error) = context.dialect.end_after(conn, claim.ttl).await {
                    return (Err(Failure::ended_by(error)), AfterRequest::EndSession);
                }
            }
            Err(error) => {
                let (answer, after) = judged(context, Err(error));
                let is_kept = after == AfterRequest::KeepSession;
                return (answer, if is_kept { AfterRequest::EndSession } else { after });
            }
        }
    }
    match answer {
        Ok(NamedAnswer::Granted) => {}
        Ok(NamedAnswer::Taken) if wait.is_zero() => {
            return refused_by_family(context, conn, (lock, mode), (Ok(None), AfterRequest::KeepSession)).await;
        }
        Ok(NamedAnswer::Taken) => return (Ok(None), AfterRequest::KeepSession),
        Ok(NamedAnswer::Interrupted) => return (Err(Failure::interrupted()), AfterRequest::KeepSession),
        Ok(NamedAnswer::Elsewhere) => return (Err(Failure::elsewhere()), AfterRequest::EndConnection),
        // The server may have granted it before the statement failed.
        Err(error) => return freed(context, conn, (lock, mode), error).await,
    }
    match draw(context, conn, mode, &values).await {
        Ok(token) => (Ok(Some((checked(token), since))), AfterRequest::KeepSession),
        Err(error) => freed(context, conn, (lock, mode), error).await,
    }
}

/// Draws the token of a lock that the session holds, and leaves the note and the hold id. After a wait there is a row mostly: that
/// of the holder before.
async fn draw<D: NamedDialect>(
    context: &NamedContext<D>,
    conn: &mut D::Conn,
    mode: Mode,
    values: &[Value<'_>; 7],
) -> sqlx::Result<Option<i64>> {
    if let Some(stamp) = &context.statements.stamp
        && let Some(token) = run(context, conn, stamp, &values[..6]).await?.granted()
    {
        return Ok(Some(token));
    }
    draw_new(context, conn, mode, values).await
}

/// The same for a key that may have no row.
async fn draw_new<D: NamedDialect>(
    context: &NamedContext<D>,
    conn: &mut D::Conn,
    mode: Mode,
    values: &[Value<'_>; 7],
) -> sqlx::Result<Option<i64>> {
    let stamp = context.statements.stamp_new(mode);
    let token = run(context, conn, stamp, &values[..6]).await?.granted();
    if token.is_some() || context.statements.sequence.is_none() {
        return Ok(token);
    }
    // It was behind the server's clock.
    context.raise_tokens(conn, true).await?;
    Ok(run(context, conn, stamp, &values[..6]).await?.granted())
}

/// The values of the statements that draw a token.
fn values_of<'a>(session: SessionId, claim: &'a Claim, lock: &'a Lock, hold: &'a str) -> [Value<'a>; 7] {
    [
        Value::Text(&lock.row.name),
        Value::Text(&lock.name.id),
        Value::Int(session.number),
        Value::Text(claim.note.as_str()),
        Value::Text(hold),
        Value::MaybeText(lock.row.is_long.then(|| claim.key.as_str())),
        Value::Int(lock.name.number),
    ]
}

/// The end of a request that freed a lock and asked for it again.
pub(super) enum Exchanged {
    /// The session did not hold it.
    NotHeld,
    /// It was held, and is free or somebody else's now.
    Freed,
    /// It was held, and is the next caller's.
    Granted((Result<u64>, BootInstant)),
}

/// Frees an exclusive lock that the session holds, and asks for it again for the next caller, without waiting.
pub(super) async fn exchange<D: NamedDialect>(
    context: &NamedContext<D>,
    conn: &mut D::Conn,
    session: SessionId,
    next: &Claim,
    lock: &Lock,
) -> Ended<Exchanged> {
    let hold = HoldId::of(&next.owner).to_string();
    let values = values_of(session, next, lock, &hold);
    let since = context.clock.now();
    let (answer, token) = match freed_and_asked(context, conn, session, lock, &values).await {
        Ok(answer) => answer,
        Err(error) => {
            return match freed(context, conn, (lock, next.mode), error).await {
                // The session surely does not hold it now. The next caller hears of the error when it asks.
                (_, AfterRequest::KeepSession) => (Ok(Exchanged::Freed), AfterRequest::KeepSession),
                (answer, after) => (answer.map(|_| Exchanged::Freed), after),
            };
        }
    };
    match answer {
        None => (Ok(Exchanged::NotHeld), AfterRequest::EndSession),
        Some(NamedAnswer::Elsewhere) => (Err(Failure::elsewhere()), AfterRequest::EndConnection),
        Some(NamedAnswer::Taken | NamedAnswer::Interrupted) => (Ok(Exchanged::Freed), AfterRequest::KeepSession),
        Some(NamedAnswer::Granted) => match kept_or_drawn(context, conn, token, &values).await {
            Ok(token) => (Ok(Exchanged::Granted((checked(token), since))), AfterRequest::KeepSession),
            // It was held to its end, whatever becomes of the next caller.
            Err(error) => (Ok(Exchanged::Freed), freed(context, conn, (lock, next.mode), error).await.1),
        },
    }
}

async fn freed_and_asked<D: NamedDialect>(
    context: &NamedContext<D>,
    conn: &mut D::Conn,
    session: SessionId,
    lock: &Lock,
    values: &[Value<'_>; 7],
) -> sqlx::Result<NamedDrawn> {
    // Not again if the server undid it: the lock is not undone with it.
    if let Some(sequence) = &context.statements.sequence {
        return Ok(again(&context.dialect.run(conn, &sequence.exchange, values).await?, session));
    }
    if let Some(stamp) = &context.statements.stamp_if_granted {
        let ask = NamedAsk { lock: &lock.name, frees_first: true, stamp, values: &values[..6] };
        return context.dialect.lock_and_draw(conn, session, ask).await;
    }
    if !context.dialect.unlock(conn, &lock.name, Mode::Exclusive).await? {
        return Ok((None, Ok(None)));
    }
    let answer = context.dialect.lock(conn, session, (&lock.name, Mode::Exclusive), NamedWait::NONE).await?;
    Ok((Some(answer), Ok(None)))
}

fn again(answer: &Answer, session: SessionId) -> NamedDrawn {
    let (answer, token) = match answer.rows.first().map(Vec::as_slice) {
        Some([_, _, number]) if number.int() != Some(session.number) => (Some(NamedAnswer::Elsewhere), None),
        Some([Cell::Int(1), token, _]) => (Some(NamedAnswer::Granted), token.int()),
        Some([Cell::Int(_), ..]) => (Some(NamedAnswer::Taken), None),
        _ => (None, None),
    };
    (answer, Ok(token))
}

/// A token that was drawn in the message with the grant, or else another one, also if the server undid the draw because of others
/// beside it.
async fn kept_or_drawn<D: NamedDialect>(
    context: &NamedContext<D>,
    conn: &mut D::Conn,
    token: sqlx::Result<Option<i64>>,
    values: &[Value<'_>; 7],
) -> sqlx::Result<Option<i64>> {
    let token = match token {
        Err(error) if context.dialect.refusal(&error) == Refusal::Undone => {
            context.collisions.note(Refusal::Undone);
            None
        }
        token => token?,
    };
    told_or_drawn(context, conn, Mode::Exclusive, token, values).await
}

/// Asks without a wait, in one statement.
async fn ask_at_once<D: NamedDialect>(
    context: &NamedContext<D>,
    conn: &mut D::Conn,
    session: SessionId,
    lock: (&Lock, Mode),
    (take, values): (&Statement, &[Value<'_>; 7]),
) -> Ended<Granted> {
    let since = context.clock.now();
    // Not again if the server undid it: the lock is not undone with it.
    let answer = match context.dialect.run(conn, take, values).await {
        Err(error) => return freed(context, conn, lock, error).await,
        Ok(answer) => answer,
    };
    let Some([is_granted, token, number]) = answer.rows.first().map(Vec::as_slice) else {
        return (Err(Failure::ended_by(corrupt("it has too few columns"))), AfterRequest::EndSession);
    };
    match is_granted.is_true() {
        _ if number.int() != Some(session.number) => (Err(Failure::elsewhere()), AfterRequest::EndConnection),
        false => (Ok(None), AfterRequest::KeepSession),
        true => match told_or_drawn(context, conn, lock.1, token.int(), values).await {
            Ok(token) => (Ok(Some((checked(token), since))), AfterRequest::KeepSession),
            Err(error) => freed(context, conn, lock, error).await,
        },
    }
}

/// The token that came with the grant, or a new one.
async fn told_or_drawn<D: NamedDialect>(
    context: &NamedContext<D>,
    conn: &mut D::Conn,
    mode: Mode,
    token: Option<i64>,
    values: &[Value<'_>; 7],
) -> sqlx::Result<Option<i64>> {
    if token.is_some() { Ok(token) } else { draw_new(context, conn, mode, values).await }
}

/// Looks who holds a lock that was refused: a holder of another family is a conflict, and no wait helps. Of the server's
/// locks, those of readers and writers are no others than exclusive ones.
async fn refused_by_family<D: NamedDialect>(
    context: &NamedContext<D>,
    conn: &mut D::Conn,
    (lock, mode): (&Lock, Mode),
    answer: Ended<Granted>,
) -> Ended<Granted> {
    let ((Ok(None), _), Some(read_write)) = (&answer, &context.statements.read_write) else { return answer };
    let held = run(context, conn, read_write.held_otherwise(mode), &[Value::Text(&lock.row.name)]).await;
    match judged(context, held) {
        (Ok(found), _) if found.rows.is_empty() => answer,
        (Ok(_), after) => (Err(Failure::of_another_family()), after),
        (Err(failure), after) => (Err(failure), after),
    }
}

/// Frees a lock that may have been granted before this error.
async fn freed<D: NamedDialect>(
    context: &NamedContext<D>,
    conn: &mut D::Conn,
    (lock, mode): (&Lock, Mode),
    error: sqlx::Error,
) -> Ended<Granted> {
    let (answer, after) = judged(context, Err(error));
    match after {
        AfterRequest::KeepSession if context.dialect.unlock(conn, &lock.name, mode).await.is_ok() => {
            (answer, AfterRequest::KeepSession)
        }
        AfterRequest::KeepSession => (answer, AfterRequest::EndSession),
        ended => (answer, ended),
    }
}

fn checked(token: Option<i64>) -> Result<u64> {
    match token.and_then(|token| u64::try_from(token).ok()).filter(|token| *token > 0) {
        None => Err(corrupt("its token is not above zero, or missing")),
        Some(token) if token >= MOST_TOKEN => {
            Err(Error::new(ErrorKind::FenceExhausted, "the fencing counter is used up"))
        }
        Some(token) => Ok(token),
    }
}
