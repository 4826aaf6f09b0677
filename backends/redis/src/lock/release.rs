//! Releases a hold, abandons a claim, and reserves tokens for a hold.

use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;
use dlock_contract::{Claim, Error, Hold, Mode, Released, Reservation, Reserved, Result, Validity};

use crate::connections::connection::Connection;
use crate::connections::pool::Connections;
use crate::layout::name::LockName;
use crate::layout::token::{FENCE, LEAST_TOKEN, TOKEN_END};
use crate::layout::units::{micros, millis};
use crate::layout::value::LockValue;
use crate::lock::store::Redis;
use crate::reply::fault;
use crate::reply::read::released;
use crate::scripts::call::on;
use crate::scripts::exclusive::SCRIPTS;

impl Redis {
    /// Prolongs a lock and reserves tokens for it.
    pub(crate) async fn reserve_tokens(&self, claim: &Claim, reservation: Reservation) -> Result<Reserved> {
        let shared = self.connections.here().await?;
        let high = self.connections.high();
        let from = self.clock.now();
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.reserve, |command| {
                command.arg(2).arg(LockName(&claim.key)).arg(FENCE).arg(LockValue(claim));
                command.arg(millis(claim.ttl)).arg(reservation.tokens).arg(u8::from(reservation.even_if_awaited));
            })
            .await?;
        let Value::Array(parts) = &answer else {
            return if fault::is_wrong_type(&answer) { Ok(Reserved::Lost) } else { Err(fault::unexpected(&answer)) };
        };
        match parts[..] {
            [Value::Int(0), _] => Ok(Reserved::Lost),
            [Value::Int(2), _] => Ok(Reserved::Awaited),
            [Value::Int(1), Value::Int(last)] => {
                let first = u64::try_from(last - i64::from(reservation.tokens) + 1).unwrap_or(0);
                // The counter was forgotten: the next grant sets it up again.
                if !(LEAST_TOKEN..TOKEN_END - u64::from(reservation.tokens)).contains(&first)
                    || Connections::is_behind(first, high)
                {
                    return Err(Error::outage("the fencing counter in Redis was lost"));
                }
                self.connections.saw(first + u64::from(reservation.tokens) - 1);
                Ok(Reserved::Tokens { first, validity: Validity::new(from, claim.ttl) })
            }
            _ => Err(fault::unexpected(&answer)),
        }
    }

    pub(crate) async fn free(&self, hold: &Hold) -> Result<Released> {
        let claim = &*hold.claim;
        if claim.mode != Mode::Exclusive {
            return Box::pin(self.end_share(claim, 0)).await;
        }
        let shared = self.connections.here().await?;
        if let Some(turn) = self.turn_after(hold) {
            return Box::pin(self.free_among_foreign_clients(&shared, claim, turn)).await;
        }
        // One command, if the server has it and no waiter is known. The script would do the same.
        if let Some(delete) = self.connections.compare_and_delete.delete(claim)
            && !self.contended.is(&claim.key, self.clock.now())
        {
            let answer = self.connections.command(&shared, delete).await?;
            if self.connections.compare_and_delete.note_answer(&answer) {
                return Ok(Released::Released);
            }
        }
        let answer = self.connections.release(&shared, claim).await?;
        released(&answer)
    }

    /// Frees a lock, and gives foreign clients their turn if it is due.
    async fn free_among_foreign_clients(
        &self,
        shared: &Arc<Connection>,
        claim: &Claim,
        turn: Duration,
    ) -> Result<Released> {
        let release = self.connections.script(shared, &SCRIPTS.release, |command| {
            on(command, LockName(&claim.key)).arg(LockValue(claim)).arg(micros(turn));
        });
        released(&release.await?)
    }

    /// See [`ForeignClients::turn_after`](crate::queue::foreign_clients::ForeignClients::turn_after).
    pub(crate) fn turn_after(&self, hold: &Hold) -> Option<Duration> {
        let now = self.clock.now();
        self.foreign_clients.turn_after(&hold.claim.key, now.since(hold.validity.from), now)
    }

    /// Leaves the wait queue and frees the lock, after all requests that the claim's own runtime has sent.
    pub(crate) async fn give_up(&self, claim: &Claim) -> Result<()> {
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
                on(command, LockName(&claim.key)).arg(LockValue(claim)).arg(self.entry(claim));
            })
            .await?;
        // If another owner holds the lock, nothing of this claim is left.
        Ok(released(&answer).map(drop))
    }
}
