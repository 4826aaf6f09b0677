//! A release that asks for the next caller of its process.

use std::sync::Arc;

use ::redis::Value;
use dlock_contract::{Attempt, Claim, Hold, Mode, Released, Result};

use super::acquire::Asked;
use super::connection::on;
use super::hold::released;
use super::layout::{self, Name};
use super::line::PLACE_LEASE;
use super::options::is_plain;
use super::scripts::SCRIPTS;
use super::store::{Redis, grant_of};
use super::units::{micros, millis};

impl Redis {
    /// Releases a lock and asks for it for another caller of this process, in one request.
    pub(super) async fn free_to(&self, hold: &Hold, next: &Arc<Claim>) -> Result<(Released, Option<Attempt>)> {
        let claim = &*hold.claim;
        let shared = self.connections.here().await?;
        let can = claim.mode == Mode::Exclusive && is_plain(next) && self.pushes.is_up(&claim.key);
        if !can || !self.connections.admits(&claim.key) {
            return Ok((self.free(hold).await?, None));
        }
        self.connections.guards.asks_for(next.ttl);
        let place = self.places.enlist(next.owner);
        // As short as a grant that is pushed: whoever it is for may be gone, or stand still.
        let granted = grant_of(next);
        let high = self.connections.high();
        let asked = Asked { place, high, sent: self.clock.now(), granted };
        self.strangers.note(&claim.key, false, asked.sent);
        let turn = self.turn_after(hold);
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.release_to, |command| {
                on(command, Name(&claim.key)).arg(layout::Value(claim)).arg(layout::Value(next)).arg(self.entry(next));
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
                    answer => self.settle(next, asked, answer).await.ok(),
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
            // Something may stand there all the same. Whoever asks next hears of what was wrong.
            self.places.dismiss(&next.owner);
            self.give_up(next).await?;
        }
        Ok((freed, answer))
    }
}
