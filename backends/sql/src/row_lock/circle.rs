//! Finds calls that wait for each other's locks.
//!
//! Nested locks are transactions of their own, so the server sees no circle among them. So a call that waits while it
//! holds other rows writes down for each of these holds the lock that it waits for. Then it looks for the holder of
//! that lock, and for the lock that this holder waits for, until it meets a hold of its own. The youngest hold of a
//! circle gives way. Each call of the circle can find that out.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Claim, Error, ErrorKind, HoldId, Result};

use tokio::sync::oneshot;

use super::aside::{ask_aside, failed};
use super::dialect::RowDialect;
use super::shared::RowShared;
use crate::dialect::{OwnedValue, Refusal};
use crate::tables::numbers::micros;

/// How long a call waits before it looks, and before it looks again. Most waits are shorter, and cost nothing.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A waiter that has not reported for this long no longer counts.
const WAIT_RECORD_LIFETIME: Duration = Duration::from_millis(1500);
/// How many locks a look goes through.
const MAX_LOCKS_FOLLOWED: usize = 32;

/// The lock for which one call waits, and the locks that it holds meanwhile.
pub(super) struct Circle<D: RowDialect> {
    shared: Arc<RowShared<D>>,
    name: String,
    holds: Vec<HoldId>,
    is_told: bool,
    /// The statement that writes a wait down. It goes on if the look is dropped, so the end of the wait comes after it.
    writing: Option<oneshot::Receiver<Result<()>>>,
}

/// A lock on the way of a look, and the youngest hold that leads to it, by its token.
struct WaitForNode {
    name: String,
    youngest: (u64, HoldId),
}

impl<D: RowDialect> Circle<D> {
    pub(super) fn of(shared: &Arc<RowShared<D>>, claim: &Claim) -> Result<Self> {
        let name = shared.table.record_of(&claim.key, &shared.table.key_of(shared.kind, &claim.key)?);
        Ok(Self { shared: shared.clone(), name, holds: claim.inside().to_vec(), is_told: false, writing: None })
    }

    /// Ends when this call is to give way.
    pub(super) async fn closes(&mut self) -> Error {
        if self.holds.is_empty() {
            return std::future::pending().await;
        }
        let context = self.shared.context.clone();
        loop {
            context.clock.sleep_until(context.clock.now().after(LOOK_INTERVAL)).await;
            // The next look repeats a failed one, and the end of the wait is there too.
            if let Ok(true) = self.announce_and_compare().await {
                context.collisions.note(Refusal::Undone);
                return conflict();
            }
        }
    }

    /// Says what this call waits for, and whether it is the one that gives way.
    async fn announce_and_compare(&mut self) -> Result<bool> {
        self.is_told = true;
        for hold in &self.holds {
            let values = vec![OwnedValue::Text(wait_name(*hold)), OwnedValue::Text(self.name.clone())];
            let shared = self.shared.clone();
            let writing = ask_aside(async move { shared.statement(|all| &all.wait, values).await.map(drop) })?;
            let written = self.writing.insert(writing).await;
            self.writing = None;
            written.map_err(|_| failed())??;
        }
        let (mut nodes, mut seen) = (Vec::new(), HashSet::new());
        let start = WaitForNode { name: self.name.clone(), youngest: (0, self.holds[0]) };
        let mut node = Some(start);
        while let Some(WaitForNode { name, youngest }) = node {
            if seen.len() >= MAX_LOCKS_FOLLOWED {
                break;
            }
            for record in self.shared.records_of(name).await? {
                let (Some(id), Some(token)) = (record.holder.id, record.holder.token) else { continue };
                let youngest = youngest.max((token, id));
                if self.holds.contains(&id) {
                    if self.holds.contains(&youngest.1) {
                        return Ok(true);
                    }
                    continue;
                }
                if let Some(next) = self.waits_for(id).await?.filter(|next| seen.insert(next.clone())) {
                    nodes.push(WaitForNode { name: next, youngest });
                }
            }
            node = nodes.pop();
        }
        Ok(false)
    }

    /// The lock for which the call of a hold waits.
    async fn waits_for(&self, hold: HoldId) -> Result<Option<String>> {
        let values = vec![OwnedValue::Text(wait_name(hold)), OwnedValue::Int(micros(WAIT_RECORD_LIFETIME))];
        let answer = self.shared.statement(|all| &all.waits, values).await?;
        Ok(answer.rows.first().and_then(|row| row.first()).map(|name| name.text().to_owned()))
    }

    /// Notes the end of the wait, so that other calls do not count this call as a waiter. Without it they would for a
    /// while. Only a wait that was written down needs this.
    pub(super) async fn end(mut self) {
        if let Some(writing) = self.writing.take() {
            let _ = writing.await;
        }
        for hold in self.holds.iter().filter(|_| self.is_told) {
            let wait = || vec![OwnedValue::Text(wait_name(*hold))];
            let deleted = self.shared.statement(|all| &all.delete_wait, wait()).await;
            if deleted.is_err_and(|error| *error.kind() == ErrorKind::PermissionDenied) {
                let _ = self.shared.statement(|all| &all.end_wait, wait()).await;
            }
        }
    }
}

/// The name under which the wait of a hold's call is written down. No lock has such a name.
fn wait_name(hold: HoldId) -> String {
    format!("!waits:{hold}")
}

fn conflict() -> Error {
    let text = "this call and another one wait for each other's locks, and this one gives way: return the error, so that the locks \
                of the enclosing calls are freed, and begin the whole call anew";
    Error::new(ErrorKind::Conflict, text)
}
