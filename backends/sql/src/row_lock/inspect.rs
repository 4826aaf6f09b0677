//! Lists the held locks, and breaks a hold: the server ends its session.

use std::time::Duration;

use dlock_contract::{BreakRecord, Error, Health, Hold, HoldId, Inspect, Listing, LockKey, LockState, Page, Result};
use dlock_store::background;
use futures::future::BoxFuture;

use super::aside::{ask_aside, failed};
use super::dialect::RowDialect;
use super::look::Living;
use super::shared::RowShared;
use super::store::RowLock;
use crate::dialect::OwnedValue;
use crate::listing::{page_of, range_of, record_in, values_of};
use crate::tables::row::{end_of, head_of};

/// How long the server may take to end a session.
const BREAK_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is asked whether the session has ended.
const BREAK_POLL_PAUSE: Duration = Duration::from_millis(20);

impl<D: RowDialect> Inspect for RowLock<D> {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.shared.bounded(self.shared.list(listing)))
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        let (shared, key, record) = (self.shared.clone(), key.clone(), record.clone());
        // On our thread: a caller that is not polled must not keep the monitor's connection.
        Box::pin(self.shared.bounded(async move {
            let breaking = ask_aside(async move { shared.break_hold(&key, id, &record).await })?;
            breaking.await.unwrap_or_else(|_| Err(failed()))
        }))
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        Box::pin(self.shared.bounded(self.shared.break_record(hold)))
    }
}

impl<D: RowDialect> RowShared<D> {
    pub(super) async fn holders(&self, key: &LockKey) -> Result<LockState> {
        let records = self.records(key).await?;
        // Waiters are in the server's queue, and the server does not count them.
        Ok(LockState::new(records.into_iter().map(|record| record.holder).collect(), None))
    }

    /// The living holds of a lock, the first one first.
    pub(super) async fn records(&self, key: &LockKey) -> Result<Vec<Living>> {
        self.records_of(self.record_name(key)?).await
    }

    /// Uses a new connection, so that a failure does not end the monitor's session.
    pub(super) async fn health(&self) -> Result<Health> {
        let (context, table) = (self.context.clone(), self.table.clone());
        context.closed.refuse()?;
        let asking = background()?.run(async move {
            let (mut conn, _) = context.dialect.connect().await?;
            let health = context.dialect.row_health(&mut conn, &table).await?;
            context.dialect.close(conn).await;
            Ok(context.collisions.told_in(health))
        });
        asking.await?
    }

    fn record_name(&self, key: &LockKey) -> Result<String> {
        Ok(self.table.record_of(key, &self.table.key_of(self.kind, key)?))
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let (prefix, mut start, mut end) = range_of(listing)?;
        if self.table.is_own {
            // The rows of a table have no namespace in their names; the keys of their holders have.
            start = head_of(&self.table.records()).to_owned();
            end = end_of(&start);
        }
        let values = values_of(listing, start, end);
        page_of(listing, &prefix, &self.statement(|all| &all.list, values).await?.rows, LockKey::from_stored)
    }

    async fn break_hold(&self, key: &LockKey, id: HoldId, record: &BreakRecord) -> Result<bool> {
        let name = self.record_name(key)?;
        let hold = || vec![OwnedValue::Text(name.clone()), OwnedValue::Text(id.to_string())];
        if !self.is_living(key, id).await? {
            return Ok(false);
        }
        let mut left = hold();
        left.push(OwnedValue::Text(record.as_str().to_owned()));
        if self.statement(|all| &all.leave_record, left).await?.changed == 0 {
            return Ok(false);
        }
        if let Err(error) = self.monitor.connection.kill_holder(&self.statements.look, &name, &id.to_string()).await {
            let _ = self.statement(|all| &all.take_back, hold()).await;
            return Err(error);
        }
        let clock = &self.context.clock;
        let until = clock.now().after(BREAK_TIMEOUT);
        while self.is_living(key, id).await? {
            if clock.now() >= until {
                return Err(Error::outage(format!(
                    "the server did not end the holder's session within {BREAK_TIMEOUT:?}"
                )));
            }
            clock.sleep_until(clock.now().after(BREAK_POLL_PAUSE)).await;
        }
        Ok(true)
    }

    async fn is_living(&self, key: &LockKey, id: HoldId) -> Result<bool> {
        Ok(self.records(key).await?.iter().any(|record| record.holder.id == Some(id)))
    }

    async fn break_record(&self, hold: &Hold) -> Result<Option<BreakRecord>> {
        let id = HoldId::of(&hold.claim.owner).to_string();
        let values = vec![OwnedValue::Text(self.record_name(&hold.claim.key)?), OwnedValue::Text(id)];
        let answer = self.statement(|all| &all.record, values).await?;
        Ok(record_in(&answer))
    }
}
