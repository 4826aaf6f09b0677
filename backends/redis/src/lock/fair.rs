//! Claims that ask for more than a plain exclusive lock: `fair`, `once_per`, another mode.

use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;
use dlock_contract::{Attempt, BootInstant, Claim, Error, ErrorKind, Mode, Queue, Result, Wake};

use crate::layout::name::LockName;
use crate::layout::units::millis;
use crate::layout::value::LockValue;
use crate::lock::acquire::wait_end;
use crate::lock::store::Redis;
use crate::queue::limits::poll;
use crate::reply::fault;
use crate::reply::read::as_array;
use crate::scripts::call::on;
use crate::scripts::try_once::TRY;

impl Redis {
    pub(crate) async fn attempt_with_options(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        match (claim.mode, claim.once_per.as_deref()) {
            (Mode::Exclusive, Some(once)) => self.ask_for_run(claim, *once).await,
            (Mode::Exclusive, None) => self.ask_in_order(claim, queue).await,
            (_, None) => self.ask_for_share(claim, queue).await,
            (_, Some(_)) => Err(Error::config("once_per", "one start per period needs an exclusive lock")),
        }
    }

    /// Goes straight to the wait queue. After a holder's death the plain commands could overtake the queue once.
    async fn ask_in_order(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        let until = wait_end(queue);
        if self.places.has(&claim.owner) {
            return self.ask_from_place(claim, until).await;
        }
        if let Some(until) = until
            && (self.pushes.is_up(&claim.key) || self.pushes.come_up(&claim.key, until).await)
        {
            return self.ask_queue(claim).await;
        }
        let sent = self.clock.now();
        let high = self.connections.high();
        let shared = self.connections.here().await?;
        let answer = self
            .connections
            .script(&shared, &TRY, |command| {
                on(command, LockName(&claim.key)).arg(LockValue(claim)).arg(millis(claim.ttl));
            })
            .await?;
        let attempt = self.read_answer(claim, &answer, high, sent).await?;
        Ok(match attempt {
            // Without pushes the waiter does not hear of a release, so it asks often.
            Attempt::Contended(wake) if until.is_some() => Attempt::Contended(wake.ask_by(sent.after(poll()))),
            other => other,
        })
    }

    /// Turns the reply of a script that gives no place in the wait queue into an attempt.
    pub(crate) async fn read_answer(
        &self,
        claim: &Arc<Claim>,
        answer: &Value,
        high: u64,
        sent: BootInstant,
    ) -> Result<Attempt> {
        let [Value::Int(outcome), second, _] = as_array(answer)? else { return Err(fault::unexpected(answer)) };
        match (outcome, second) {
            (1, token) => self.granted(claim, token, high, sent, None).await.map(Attempt::Acquired),
            (0, Value::Int(left)) => {
                let left = Duration::from_millis(u64::try_from(*left).unwrap_or_default());
                Ok(Attempt::Contended(Wake::poll().ask_by(sent.after(left)).lease_left(left)))
            }
            (2, _) => Err(fault::conflict()),
            (3, _) => Err(Error::new(ErrorKind::CorruptState, "the lock in Redis has no lease, so it would never end")),
            (4, _) => Ok(Attempt::AlreadyRun),
            _ => Err(fault::unexpected(answer)),
        }
    }
}
