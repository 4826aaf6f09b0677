//! One attempt for a lock: an update of its row, and if it has none yet, an insert.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, BootInstant, Claim, Error, ErrorKind, Hold, HoldId, Note, OncePer, Result, Validity, Wake,
};

use crate::connection::session::{StatementSession, StoreContext};
use crate::dialect::{Answer, Cell, Dialect, Value};
use crate::tables::numbers::{MOST_TOKEN, micros};
use crate::tables::row::{RowName, corrupt};
use crate::tables::shedlock;
use crate::tables::statements::LeaseStatements;
use crate::tables::words::Statement;

/// Asks once for the lock.
pub(crate) async fn acquire<D: Dialect>(session: &mut StatementSession<D>, claim: &Arc<Claim>) -> Result<Attempt> {
    let context = session.context.clone();
    let request = AttemptValues::new(&context, claim)?;
    // An earlier attempt of this owner may have had no answer. Its statement must not take the row after this one has freed it.
    session.end_left().await?;
    let (update, refused, create) = request.statements(&context.statements);
    // The second time, somebody has made the row between two statements of the first.
    for _ in 0..2 {
        let from = context.clock.now();
        let answer = session.ask(update, &request.of_update()).await?;
        if answer.changed > 0 {
            return request.acquired(&answer, from, session);
        }
        let asked = context.clock.now();
        if let Some(row) = session.ask(refused, &request.of_refused()).await?.rows.first() {
            return request.refused(row, asked);
        }
        for make in &context.statements.make {
            session.insert(make, &[Value::Text(&request.row.name)]).await?;
        }
        if !context.statements.make.is_empty() {
            continue;
        }
        if session.is_shared() {
            session.insert(&context.statements.make_free, &request.of_free_row()).await?;
            continue;
        }
        let from = context.clock.now();
        if let Some(answer) = session.insert(create, &request.of_insert()).await? {
            return request.acquired(&answer, from, session);
        }
    }
    // The row comes and goes: another session has deleted it just now.
    Ok(Attempt::Contended(Wake::poll()))
}

/// Passes a lock on from its holder to the next claim. `None`: it is not the holder's any more.
pub(crate) async fn pass<D: Dialect>(
    session: &mut StatementSession<D>,
    holder: &Claim,
    next: &Arc<Claim>,
) -> Result<Option<Hold>> {
    let context = session.context.clone();
    let request = AttemptValues::new(&context, next)?;
    let mut values = request.of_grant();
    values.insert(1, Value::Bytes(holder.owner.as_bytes()));
    let from = context.clock.now();
    let answer = session.ask(&context.statements.pass, &values).await?;
    if answer.changed == 0 {
        return Ok(None);
    }
    request.hold(&answer, from, session).map(Some)
}

/// The values of an attempt's statements.
struct AttemptValues<'a> {
    claim: &'a Arc<Claim>,
    row: RowName,
    hold: String,
    once: Option<OncePer>,
}

impl<'a> AttemptValues<'a> {
    fn new<D: Dialect>(context: &StoreContext<D>, claim: &'a Arc<Claim>) -> Result<Self> {
        let hold = match context.dialect.shedlock() {
            Some(_) => shedlock::locked_by(claim),
            None => HoldId::of(&claim.owner).to_string(),
        };
        Ok(Self { claim, row: context.row_name(&claim.key)?, hold, once: claim.once_per.as_deref().copied() })
    }

    fn statements<'s>(&self, all: &'s LeaseStatements) -> (&'s Statement, &'s Statement, &'s Statement) {
        match self.once {
            None => (&all.acquire, &all.refused, &all.create),
            Some(_) => (&all.start, &all.refused_start, &all.create_start),
        }
    }

    fn of_grant(&self) -> Vec<Value<'_>> {
        vec![
            Value::Text(&self.row.name),
            Value::Bytes(self.claim.owner.as_bytes()),
            Value::Int(micros(self.claim.ttl)),
            Value::Text(self.claim.note.as_str()),
            Value::Text(&self.hold),
        ]
    }

    fn of_update(&self) -> Vec<Value<'_>> {
        let mut values = self.of_grant();
        if let Some(once) = self.once {
            values.extend([Value::Int(micros(once.period)), Value::Int(micros(once.offset))]);
            values.push(Value::Int(once.rerun.into()));
        }
        values
    }

    fn of_insert(&self) -> Vec<Value<'_>> {
        let mut values = self.of_grant();
        if let Some(once) = self.once {
            values.extend([Value::Int(micros(once.period)), Value::Int(micros(once.offset))]);
        }
        values.push(self.whole_key());
        values
    }

    fn of_free_row(&self) -> [Value<'_>; 2] {
        [Value::Text(&self.row.name), self.whole_key()]
    }

    fn whole_key(&self) -> Value<'_> {
        Value::MaybeText(self.row.is_long.then(|| self.claim.key.as_str()))
    }

    fn of_refused(&self) -> Vec<Value<'_>> {
        let mut values = vec![Value::Text(&self.row.name)];
        if let Some(once) = self.once {
            values.extend([Value::Bytes(self.claim.owner.as_bytes()), Value::Int(once.rerun.into())]);
            values.extend([Value::Int(micros(once.period)), Value::Int(micros(once.offset))]);
        }
        values
    }

    fn acquired<D: Dialect>(
        &self,
        answer: &Answer,
        from: BootInstant,
        session: &StatementSession<D>,
    ) -> Result<Attempt> {
        self.hold(answer, from, session).map(Attempt::Acquired)
    }

    fn hold<D: Dialect>(&self, answer: &Answer, from: BootInstant, session: &StatementSession<D>) -> Result<Hold> {
        let token = answer.granted().and_then(|token| u64::try_from(token).ok()).filter(|token| *token > 0);
        match token.ok_or_else(|| corrupt("its token is not above zero, or missing"))? {
            token if token >= MOST_TOKEN => {
                Err(Error::new(ErrorKind::FenceExhausted, "the fencing counter is used up"))
            }
            token => {
                let hold = Hold::new(self.claim.clone(), token, Validity::new(from, self.claim.ttl))?;
                Ok(hold.with_session(session.granting_server.clone()))
            }
        }
    }

    fn refused(&self, row: &[Cell], asked: BootInstant) -> Result<Attempt> {
        let [left, note, is_held, run @ ..] = row else { return Err(corrupt("it has too few columns")) };
        // A run that has not ended may start again, but only when its lock is free.
        if let [is_started, is_open] = run
            && is_started.is_true()
            && !is_open.is_true()
        {
            return Ok(Attempt::AlreadyRun);
        }
        let left = left.int().filter(|_| is_held.is_true()).unwrap_or_default();
        let left = Duration::from_micros(u64::try_from(left).unwrap_or_default());
        let wake = Wake::poll().ask_by(asked.after(left)).lease_left(left);
        Ok(Attempt::Contended(wake.held_by(Some(Note::from_stored(note.text())))))
    }
}
