//! What happens to a hold, and to a claim that is given up.

use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;
use dlock_contract::{Claim, Error, Hold, Mode, Released, Reservation, Reserved, Result, Validity};

use super::connection::{Connection, Connections, on};
use super::fault;
use super::layout::{self, Name};
use super::scripts::{FENCE, LEAST_TOKEN, SCRIPTS, TOKEN_END};
use super::store::Redis;
use super::units::{micros, millis};

impl Redis {
    /// Prolongs a lock and reserves tokens for it.
    pub(super) async fn reserve_tokens(&self, claim: &Claim, asked: Reservation) -> Result<Reserved> {
        let shared = self.connections.here().await?;
        let high = self.connections.high();
        let from = self.clock.now();
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.reserve, |command| {
                command.arg(2).arg(Name(&claim.key)).arg(FENCE).arg(layout::Value(claim));
                command.arg(millis(claim.ttl)).arg(asked.tokens).arg(u8::from(asked.even_if_awaited));
            })
            .await?;
        let Value::Array(parts) = &answer else {
            return if fault::is_wrong_type(&answer) { Ok(Reserved::Lost) } else { Err(fault::unexpected(&answer)) };
        };
        match parts[..] {
            [Value::Int(0), _] => Ok(Reserved::Lost),
            [Value::Int(2), _] => Ok(Reserved::Awaited),
            [Value::Int(1), Value::Int(last)] => {
                let first = u64::try_from(last - i64::from(asked.tokens) + 1).unwrap_or(0);
                // The counter was forgotten: the next grant sets it up again.
                if !(LEAST_TOKEN..TOKEN_END - u64::from(asked.tokens)).contains(&first)
                    || Connections::is_behind(first, high)
                {
                    return Err(Error::outage("the fencing counter in Redis was lost"));
                }
                self.connections.saw(first + u64::from(asked.tokens) - 1);
                Ok(Reserved::Tokens { first, validity: Validity { from, granted: claim.ttl } })
            }
            _ => Err(fault::unexpected(&answer)),
        }
    }

    pub(super) async fn free(&self, hold: &Hold) -> Result<Released> {
        let claim = &*hold.claim;
        if claim.mode != Mode::Exclusive {
            return Box::pin(self.end_share(claim, 0)).await;
        }
        let shared = self.connections.here().await?;
        if let Some(turn) = self.turn_after(hold) {
            return Box::pin(self.free_among_strangers(&shared, claim, turn)).await;
        }
        // One command, where the server has it and nobody is known to stand in line: then the script would do the same.
        if let Some(delete) = self.connections.native.delete(claim)
            && !self.contended.is(&claim.key, self.clock.now())
        {
            let answer = self.connections.command(&shared, delete).await?;
            if self.connections.native.has_deleted(&answer) {
                return Ok(Released::Released);
            }
        }
        let answer = self.connections.release(&shared, claim).await?;
        released(&answer)
    }

    /// Frees a lock, and gives strangers their turn if it is due after one of ours.
    async fn free_among_strangers(&self, shared: &Arc<Connection>, claim: &Claim, turn: Duration) -> Result<Released> {
        let release = self.connections.script(shared, &SCRIPTS.release, |command| {
            on(command, Name(&claim.key)).arg(layout::Value(claim)).arg(micros(turn));
        });
        released(&release.await?)
    }

    /// See [`Strangers::turn_after`](super::strangers::Strangers::turn_after).
    pub(super) fn turn_after(&self, hold: &Hold) -> Option<Duration> {
        let now = self.clock.now();
        self.strangers.turn_after(&hold.claim.key, now.since(hold.validity.from), now)
    }

    /// Leaves the line and frees the lock, after what was sent from the claim's own runtime.
    pub(super) async fn give_up(&self, claim: &Claim) -> Result<()> {
        self.connections.after(claim.origin, |shared| async move { self.give_up_on(&shared, claim).await }).await?
    }

    async fn give_up_on(&self, shared: &Arc<Connection>, claim: &Claim) -> Result<Result<()>> {
        if claim.mode != Mode::Exclusive {
            return Box::pin(self.leave_shares(shared, claim)).await;
        }
        if let Some(once) = claim.once_per.as_deref() {
            return Box::pin(self.abandon_run(shared, claim, *once)).await;
        }
        let answer = self
            .connections
            .script(shared, &SCRIPTS.abandon, |command| {
                on(command, Name(&claim.key)).arg(layout::Value(claim)).arg(self.entry(claim));
            })
            .await?;
        // If what stands there is not ours, nothing of ours is left.
        Ok(released(&answer).map(drop))
    }
}

/// What a script that ends holds has answered.
pub fn released(answer: &Value) -> Result<Released> {
    match answer {
        Value::Int(1) => Ok(Released::Released),
        Value::Int(0) => Ok(Released::NotOwner),
        other if fault::is_wrong_type(other) => Ok(Released::NotOwner),
        other => Err(fault::unexpected(other)),
    }
}
