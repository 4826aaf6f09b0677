//! The ends of a hold: its release, its end with what is recorded of it, and the undoing of an attempt.

use std::time::{Duration, UNIX_EPOCH};

use dlock_contract::{Claim, LastSuccess, LockKey, Note, Released, Result, RunEnd};

use crate::connection::session::{RetriedAnswer, StatementSession};
use crate::dialect::{Dialect, Value};
use crate::tables::numbers::micros;
use crate::tables::row::corrupt;

/// Frees the lock if it is this owner's.
pub(crate) async fn release<D: Dialect>(session: &mut StatementSession<D>, claim: &Claim) -> Result<Released> {
    let context = session.context.clone();
    let row = context.row_name(&claim.key)?;
    let values = [Value::Text(&row.name), Value::Bytes(claim.owner.as_bytes())];
    ended(&context.dialect, session.ask_for_change(&context.statements.release, &values).await?)
}

/// Frees the lock, or keeps it for some time, and records how the run went.
pub(crate) async fn end<D: Dialect>(
    session: &mut StatementSession<D>,
    claim: &Claim,
    keep: Duration,
    run: Option<RunEnd>,
) -> Result<Released> {
    let context = session.context.clone();
    let row = context.row_name(&claim.key)?;
    let took = match run {
        Some(RunEnd::Succeeded { took }) => Some(i64::try_from(took.as_nanos()).unwrap_or(i64::MAX)),
        Some(RunEnd::Failed) | None => None,
    };
    let ends_run = run.is_some() && claim.once_per.is_some();
    let values = [
        Value::Text(&row.name),
        Value::Bytes(claim.owner.as_bytes()),
        Value::Int(micros(keep)),
        Value::Maybe(took),
        Value::Int(ends_run.into()),
    ];
    ended(&context.dialect, session.ask_for_change(&context.statements.end, &values).await?)
}

/// A hold that a second request does not find may have been ended by the first.
fn ended<D: Dialect>(dialect: &D, asked: RetriedAnswer) -> Result<Released> {
    match asked.again {
        _ if asked.answer.changed > 0 => Ok(Released::Released),
        None => Ok(Released::NotOwner),
        Some(error) => Err(dialect.fault(error)),
    }
}

/// Frees what the claim may have won, and gives its period back.
pub(crate) async fn abandon<D: Dialect>(session: &mut StatementSession<D>, claim: &Claim) -> Result<()> {
    let context = session.context.clone();
    let row = context.row_name(&claim.key)?;
    let gives_back = claim.once_per.as_ref().is_some_and(|once| !once.rerun);
    let values = [Value::Text(&row.name), Value::Bytes(claim.owner.as_bytes()), Value::Int(gives_back.into())];
    // The attempt that it undoes must not come after it.
    session.end_left().await?;
    session.ask(&context.statements.abandon, &values).await.map(drop)
}

/// The last run under this key that was a success.
pub(crate) async fn last_success<D: Dialect>(
    session: &mut StatementSession<D>,
    key: &LockKey,
) -> Result<Option<LastSuccess>> {
    let context = session.context.clone();
    let row = context.row_name(key)?;
    let answer = session.ask(&context.statements.last_success, &[Value::Text(&row.name)]).await?;
    let Some(row) = answer.rows.first() else { return Ok(None) };
    let [started, took, note] = &row[..] else { return Err(corrupt("it has too few columns")) };
    let number = |cell: Option<i64>| cell.and_then(|number| u64::try_from(number).ok());
    let times = number(started.int()).zip(number(took.int()));
    let (started, took) = times.ok_or_else(|| corrupt("a run without a time"))?;
    let started = UNIX_EPOCH.checked_add(Duration::from_micros(started));
    let started = started.ok_or_else(|| corrupt("a run at a time that cannot be"))?;
    Ok(Some(LastSuccess::new(started, Duration::from_nanos(took), Note::from_stored(note.text()))))
}
