//! Hand-over inside the process: a release that also asks for the lock for the next waiter.

use std::sync::Arc;

use ::redis::Value;
use dlock_contract::{Attempt, Claim, Hold, Mode, Released, Result};

use crate::layout::name::LockName;
use crate::layout::units::{micros, millis};
use crate::layout::value::LockValue;
use crate::lock::acquire::QueueRequest;
use crate::lock::store::{Redis, grant_of, is_plain};
use crate::queue::limits::PLACE_LEASE;
use crate::reply::read::released;
use crate::scripts::call::on;
use crate::scripts::exclusive::SCRIPTS;

impl Redis {
    /// Releases a lock and asks for it for another caller of this process, in one request.
    pub(crate) async fn free_to(&self, hold: &Hold, next: &Arc<Claim>) -> Result<(Released, Option<Attempt>)> {
        let claim = &*hold.claim;
        let shared = self.connections.here().await?;
        let can_hand_over = claim.mode == Mode::Exclusive && is_plain(next) && self.pushes.is_up(&claim.key);
        if !can_hand_over || !self.connections.admits(&claim.key) {
            return Ok((self.free(hold).await?, None));
        }
        self.connections.quarantine.rules.asks_for(next.ttl);
        let place = self.places.enlist(next.owner);
        // As short as a pushed grant: the waiter may be gone, or may not be polled.
        let granted = grant_of(next);
        let high = self.connections.high();
        let request = QueueRequest { place, high, sent: self.clock.now(), granted };
        self.foreign_clients.note(&claim.key, false, request.sent);
        let turn = self.turn_after(hold);
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.release_to, |command| {
                on(command, LockName(&claim.key)).arg(LockValue(claim)).arg(LockValue(next)).arg(self.entry(next));
                command.arg(&*self.pushes.process).arg(millis(granted)).arg(millis(PLACE_LEASE));
                if let Some(turn) = turn {
                    command.arg(micros(turn));
                }
            })
            .await?;
        let (freed, answer) = match answer {
            // A slot on its way from server to server: nothing has run.
            Value::Nil => {
                self.places.dismiss(&next.owner);
                return Ok((self.free(hold).await?, None));
            }
            Value::Array(parts) if parts.len() == 2 => {
                let answer = match &parts[1] {
                    Value::Nil => None,
                    answer => self.read_queue_answer(next, request, answer).await.ok(),
                };
                (released(&parts[0])?, answer)
            }
            other => (released(&other)?, None),
        };
        let answer = match answer {
            Some(attempt) => self.checked(next, attempt, high).await.ok(),
            None => None,
        };
        if answer.is_none() {
            // The request may have left something in the server. The next attempt reports what was wrong.
            self.places.dismiss(&next.owner);
            self.give_up(next).await?;
        }
        Ok((freed, answer))
    }
}
