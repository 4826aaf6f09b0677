//! The way in which a namespace is locked, as the table has it.

use dlock_contract::{LockKey, Result};

use crate::connection::session::StatementSession;
use crate::dialect::{Dialect, Value};
use crate::ways::{Ways, way_is_gone, way_name};

impl<D: Dialect> StatementSession<D> {
    /// Notes the way of the key's namespace in the table. Fails if the table has another way.
    pub(crate) async fn agree(&mut self, ways: &Ways, key: &LockKey) -> Result<()> {
        if !self.has_way(ways, key).await? {
            let (name, context) = (way_name(key), self.context.clone());
            self.insert(&context.statements.write_meta, &[Value::Text(&name), Value::Text(ways.word())]).await?;
            if !self.has_way(ways, key).await? {
                return Err(way_is_gone());
            }
        }
        Ok(())
    }

    /// Whether the table has the way of the key's namespace. Fails if it has another way.
    pub(crate) async fn has_way(&mut self, ways: &Ways, key: &LockKey) -> Result<bool> {
        let (name, context) = (way_name(key), self.context.clone());
        let rows = self.ask(&context.statements.read_meta, &[Value::Text(&name)]).await?.rows;
        let Some(word) = rows.first().and_then(|row| row.first()) else { return Ok(false) };
        ways.compare(key, word.text()).map(|()| true)
    }
}
