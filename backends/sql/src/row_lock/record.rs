//! The record of a hold: its fencing token, the note of its holder, and how the server knows it.
//!
//! It is committed before the body begins, and over another connection than the hold's: a transaction that is rolled back
//! takes no token with it.

use dlock_contract::{Claim, Error, ErrorKind, Mode, Result};

use super::dialect::RowId;
use super::statements::RowStatements;
use crate::connection::session::StatementSession;
use crate::dialect::{Answer, Dialect, Value};
use crate::tables::numbers::MOST_TOKEN;
use crate::tables::row::corrupt;
use crate::tables::words::Statement;

/// The record of one hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) is_reader: bool,
}

/// How the table holds a mode.
pub(super) fn mode_number(mode: Mode) -> i64 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Write => 1,
        Mode::Read => 2,
        // No claim asks for it: the profile says no.
        Mode::Permits(_) => 3,
    }
}

/// Whether holds of these two may be asked for under one key.
pub(super) fn mixes(one: i64, other: i64) -> bool {
    (one == 0) == (other == 0)
}

/// Writes the record, and gives the token.
pub(super) async fn write<D: Dialect>(
    statements: &RowStatements,
    session: &mut StatementSession<D>,
    record: &Record,
    claim: &Claim,
    id: &RowId,
) -> Result<u64> {
    let key = Value::Text(claim.key.as_str());
    let (name, mode) = (Value::Text(&record.name), Value::Int(mode_number(claim.mode)));
    let (number, transaction) = (Value::Int(id.session), Value::Int(id.transaction));
    let (hold, note) = (Value::Text(&id.hold), Value::Text(claim.note.as_str()));
    if !record.is_reader {
        let values = [name, mode, number, transaction, hold, note, key];
        return draw(session, [&statements.stamp_again, &statements.stamp], &values).await;
    }
    let values = [name, key, number, transaction, hold];
    let token = draw(session, [&statements.draw_again, &statements.draw], &values).await?;
    // It is below 2^53.
    let drawn = Value::Int(i64::try_from(token).unwrap_or(i64::MAX));
    let values = [name, hold, drawn, mode, number, transaction, note, key];
    session.insert(&statements.stamp_reader, &values).await?;
    Ok(token)
}

/// Changes the record, or inserts it. If somebody else has inserted it meanwhile, it changes that one.
async fn draw<D: Dialect>(
    session: &mut StatementSession<D>,
    [change, insert]: [&Statement; 2],
    values: &[Value<'_>],
) -> Result<u64> {
    for statement in [change, insert, change] {
        if let Some(answer) = session.insert(statement, values).await? {
            return token_of(&answer);
        }
    }
    Err(Error::outage("the session of the lock ended before its token was drawn"))
}

fn token_of(answer: &Answer) -> Result<u64> {
    match answer.granted().and_then(|token| u64::try_from(token).ok()).filter(|token| *token > 0) {
        None => Err(corrupt("its token is not above zero, or missing")),
        Some(token) if token >= MOST_TOKEN => {
            Err(Error::new(ErrorKind::FenceExhausted, "the fencing counter is used up"))
        }
        Some(token) => Ok(token),
    }
}
