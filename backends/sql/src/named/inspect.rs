//! Which locks are held, and breaking a hold.
//!
//! Only the holder's process can end one hold and no other: a session that an operator kills may have other locks. So an
//! operator's process writes the request into the row of the lock, and the holder's [monitor](super::monitor) finds it there
//! and gives the lock up.

use std::future::ready;
use std::time::Duration;

use dlock_contract::{BreakRecord, Error, Health, Hold, HoldId, Inspect, Listing, LockKey, LockState, Page, Result};
use dlock_store::background;
use futures::future::BoxFuture;

use super::dialect::NamedDialect;
use super::held::Held;
use super::holder_statements::HolderStatements;
use super::requests::run;
use super::shared::NamedShared;
use super::store::NamedLock;
use crate::dialect::{Answer, OwnedValue};
use crate::listing::{holder_of, page_of, range_of, record_in, values_of};
use crate::tables::row::corrupt;
use crate::tables::words::Statement;

/// How long the holder's process has for giving the lock up. Its monitor looks four times in a second.
const BREAK_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is asked whether the lock was given up.
const BREAK_POLL_PAUSE: Duration = Duration::from_millis(50);

impl<D: NamedDialect> Inspect for NamedLock<D> {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.shared.bounded(self.shared.list(listing)))
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.shared.bounded(self.shared.break_hold(key, id, record)))
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        if let Some(known) = hold.session::<Held<D>>().and_then(Held::ending) {
            return Box::pin(ready(Ok(known)));
        }
        Box::pin(self.shared.bounded(self.shared.record_of(hold)))
    }
}

/// Which statement about the holders of a lock.
type HolderStatementChoice = fn(&HolderStatements) -> &Statement;

impl<D: NamedDialect> NamedShared<D> {
    pub(super) async fn holder(&self, key: &LockKey) -> Result<LockState> {
        let answer =
            self.about_holders(|of| &of.look, vec![OwnedValue::Text(self.context.lock_of(key)?.row.name)]).await?;
        let holders = answer.rows.iter().map(|row| {
            let [note, hold, token, ..] = &row[..] else { return Err(corrupt("it has too few columns")) };
            Ok(holder_of([note, hold, token]))
        });
        // Waiters are in the server's queue, and the server does not count them.
        Ok(LockState::new(holders.collect::<Result<_>>()?, None))
    }

    /// Over a connection of its own: a session that fails here may have locks.
    pub(super) async fn health(&self) -> Result<Health> {
        let context = self.context.clone();
        context.closed.refuse()?;
        let asking = background()?.run(async move {
            let (mut conn, _) = context.dialect.connect_named().await?;
            let health = context.dialect.named_health(&mut conn).await?;
            context.dialect.close(conn).await;
            Ok(context.collisions.told_in(health))
        });
        asking.await?
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let (prefix, start, end) = range_of(listing)?;
        let values = values_of(listing, start, end);
        page_of(listing, &prefix, &self.list_rows(values).await?.rows, LockKey::from_stored)
    }

    async fn break_hold(&self, key: &LockKey, id: HoldId, record: &BreakRecord) -> Result<bool> {
        let row = self.context.lock_of(key)?.row.name;
        let hold = || vec![OwnedValue::Text(row.clone()), OwnedValue::Text(id.to_string())];
        let mut request = hold();
        request.push(OwnedValue::Text(record.as_str().to_owned()));
        let requested = self.about_holders(|of| &of.request, request).await?.changed > 0;
        let (mut stands, clock) = (requested, &self.context.clock);
        let end = clock.now().after(BREAK_TIMEOUT);
        while stands && clock.now() < end {
            clock.sleep_until(clock.now().after(BREAK_POLL_PAUSE)).await;
            stands = !self.about_holders(|of| &of.stands, hold()).await?.rows.is_empty();
        }
        if stands {
            // If another hold has the row by now, this one has ended.
            stands = self.about_holders(|of| &of.take_back, hold()).await?.changed > 0;
        }
        match stands {
            true => Err(Error::outage(format!(
                "the holder did not give the lock up within {BREAK_TIMEOUT:?}, and keeps it: its process is stopped, or cannot \
                 reach the store; end that process, or wait until the server frees the lock after the holder's ttl"
            ))),
            false => Ok(requested),
        }
    }

    async fn record_of(&self, hold: &Hold) -> Result<Option<BreakRecord>> {
        let id = HoldId::of(&hold.claim.owner).to_string();
        let values = vec![OwnedValue::Text(self.context.lock_of(&hold.claim.key)?.row.name), OwnedValue::Text(id)];
        let answer = self.about_holders(|of| &of.record, values).await?;
        Ok(record_in(&answer))
    }

    async fn list_rows(&self, values: Vec<OwnedValue>) -> Result<Answer> {
        self.look(move |context, conn| {
            let values = values.clone();
            Box::pin(async move {
                let values: Vec<_> = values.iter().map(OwnedValue::value).collect();
                run(context, conn, &context.statements.list, &values).await
            })
        })
        .await
    }

    /// Runs one statement on any session: about exclusive holders, and if that finds nothing, about readers and writers.
    async fn about_holders(&self, which: HolderStatementChoice, values: Vec<OwnedValue>) -> Result<Answer> {
        self.look(move |context, conn| {
            let values = values.clone();
            Box::pin(async move {
                let values: Vec<_> = values.iter().map(OwnedValue::value).collect();
                let mut answer = Answer::default();
                for holders in context.statements.all_holders() {
                    answer = run(context, conn, which(holders), &values).await?;
                    if answer.changed > 0 || !answer.rows.is_empty() {
                        break;
                    }
                }
                Ok(answer)
            })
        })
        .await
    }
}
