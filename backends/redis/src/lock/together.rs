//! Takes several plain locks by one script, all or none. In a cluster all of them must be in one slot.

use std::sync::Arc;

use ::redis::Value;
use dlock_contract::{Claim, Error, Result, Together};

use crate::layout::name::LockName;
use crate::layout::slots::slot_of;
use crate::layout::token::FENCE;
use crate::layout::units::millis;
use crate::layout::value::LockValue;
use crate::lock::store::{Redis, is_plain};
use crate::reply::fault;
use crate::scripts::together::TOGETHER;

/// The most locks of one request. More would delay the commands of others.
const MOST_LOCKS: usize = 100;

impl Redis {
    pub(crate) async fn attempt_all(&self, claims: &[Arc<Claim>]) -> Result<Together> {
        if !self.takes_together(claims) {
            return Ok(Together::OneByOne);
        }
        claims.iter().for_each(|claim| self.connections.quarantine.rules.asks_for(claim.ttl));
        let shared = self.connections.here().await.map_err(Error::never_sent)?;
        let Some(first) = claims.first() else { return Ok(Together::OneByOne) };
        // In a cluster, all locks of the request are in one slot.
        self.connections.admit(&first.key).await?;
        let high = self.connections.high();
        let from = self.clock.now();
        let answer = self
            .connections
            .script(&shared, &TOGETHER, |command| {
                command.arg(claims.len() + 1);
                for (number, claim) in claims.iter().enumerate() {
                    command.arg(LockName(&claim.key));
                    if number == 0 {
                        command.arg(FENCE);
                    }
                }
                for claim in claims {
                    command.arg(LockValue(claim)).arg(millis(claim.ttl));
                }
            })
            .await?;
        let tokens = match answer {
            Value::Int(0) => return Ok(Together::Contended),
            // The slot is moving to another server. Nothing has run.
            Value::Nil => return Ok(Together::OneByOne),
            Value::Array(tokens) if tokens.len() == claims.len() => tokens,
            other => return Err(fault::unexpected(&other)),
        };
        // The server may be in quarantine by now. Then the engine abandons what was taken.
        self.connections.admit(&first.key).await?;
        let mut holds = Vec::with_capacity(claims.len());
        for (claim, token) in claims.iter().zip(&tokens) {
            holds.push(self.granted(claim, token, high, from, None).await?);
        }
        Ok(Together::Acquired(holds))
    }

    /// Whether one script can take these locks, and whether they are likely to be free.
    fn takes_together(&self, claims: &[Arc<Claim>]) -> bool {
        let now = self.clock.now();
        let Some(first) = claims.first() else { return false };
        let slot = self.connections.cluster().map(|_| slot_of(&first.key));
        (2..=MOST_LOCKS).contains(&claims.len())
            // With `wait_replicas` each grant must wait for the replicas by itself.
            && self.connections.target.settings.wait_replicas == 0
            && claims.iter().all(|claim| {
                is_plain(claim)
                    // If another owner was seen at the lock lately, it probably still holds the lock or waits for it.
                    && !self.contended.is(&claim.key, now)
                    && slot.is_none_or(|slot| slot_of(&claim.key) == slot)
            })
    }
}
