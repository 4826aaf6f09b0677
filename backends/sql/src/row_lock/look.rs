//! Reads and changes records of holds, by one statement each.

use dlock_contract::{Holder, Mode, Result};

use super::dialect::RowDialect;
use super::held::HeldRow;
use super::record::mode_number;
use super::shared::RowShared;
use super::statements::RowStatements;
use crate::dialect::{Answer, OwnedValue, Value};
use crate::listing::holder_of;
use crate::tables::row::corrupt;
use crate::tables::words::Statement;

/// Which statement.
pub(super) type RowStatementChoice = fn(&RowStatements) -> &Statement;

/// A living hold of a lock.
pub(super) struct Living {
    pub(super) holder: Holder,
    pub(super) mode: i64,
}

impl<D: RowDialect> RowShared<D> {
    /// Whether somebody else was granted the lock after this hold. The row may be locked, and not by this hold's session: the
    /// server has undone its transaction, and the body has gone on.
    ///
    /// The monitor asks: a hold must not be lost because others have all connections of the pool.
    pub(super) async fn is_overtaken(&self, held: &HeldRow<D>) -> Result<bool> {
        let about = (&self.statements.look, &held.record.name);
        let asked = self.monitor.connection.ask(&about, |dialect, conn, (look, name)| {
            Box::pin(async move { dialect.run(conn, look, &[Value::Text(name)]).await })
        });
        let records = living_in(&asked.await?.0)?;
        let is_reader = |record: &Living| record.mode == mode_number(Mode::Read);
        Ok(records.iter().any(|record| {
            let is_later = record.holder.token.is_some_and(|token| token > held.token);
            is_later && !(held.record.is_reader && is_reader(record))
        }))
    }

    /// The living holds of a lock by the name of its record, the first one first.
    pub(super) async fn records_of(&self, name: String) -> Result<Vec<Living>> {
        living_in(&self.statement(|all| &all.look, vec![OwnedValue::Text(name)]).await?)
    }

    /// Runs one statement about records.
    pub(super) async fn statement(&self, which: RowStatementChoice, values: Vec<OwnedValue>) -> Result<Answer> {
        let statements = self.statements.clone();
        let asking = self.pool.run(move |session| {
            Box::pin(async move {
                let values: Vec<_> = values.iter().map(OwnedValue::value).collect();
                session.ask(which(&statements), &values).await
            })
        });
        asking.await
    }
}

/// The holds in an answer of `look`.
fn living_in(answer: &Answer) -> Result<Vec<Living>> {
    let living = answer.rows.iter().map(|row| {
        let [note, hold, token, mode, ..] = &row[..] else {
            return Err(corrupt("it has too few columns"));
        };
        Ok(Living { holder: holder_of([note, hold, token]), mode: mode.int().unwrap_or_default() })
    });
    living.collect()
}
