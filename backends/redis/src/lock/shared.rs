//! Readers, writers and permits: locks that several may hold, each with a lease of its own.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value};
use dlock_contract::{Attempt, Claim, Mode, Queue, Released, Result, Wake};

use crate::connections::connection::Connection;
use crate::layout::marker::Marker;
use crate::layout::name::LockName;
use crate::layout::units::millis;
use crate::lock::acquire::wait_end;
use crate::lock::store::Redis;
use crate::queue::grant::{Anchor, with_slot};
use crate::queue::limits::{SHARED_PLACE_LEASE, poll, slow_poll};
use crate::queue::places::news;
use crate::reply::fault;
use crate::reply::read::{as_array, released};
use crate::scripts::call::on;
use crate::scripts::shared::SHARED_SCRIPTS;

const fn letter(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "r",
        Mode::Permits(_) => "p",
        _ => "w",
    }
}

impl Redis {
    pub(crate) async fn ask_for_share(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        let Some(until) = wait_end(queue) else {
            return self.ask_shares(claim, 0).await;
        };
        let known = self.pushes.is_up(&claim.key) || self.places.has(&claim.owner);
        if !known {
            // The lock may be free, and then no push connection is needed.
            let answer = self.ask_shares(claim, 0).await?;
            if !matches!(answer, Attempt::Contended(_)) {
                return Ok(answer);
            }
        }
        // Without pushes the waiter joins the queue all the same, and polls.
        let place = if self.pushes.is_up(&claim.key) || self.pushes.come_up(&claim.key, until).await {
            SHARED_PLACE_LEASE
        } else {
            -SHARED_PLACE_LEASE
        };
        self.ask_shares(claim, place).await
    }

    async fn ask_shares(&self, claim: &Arc<Claim>, lease: i64) -> Result<Attempt> {
        // The place exists before the request leaves, because a push may arrive before the reply.
        let place = (lease != 0).then(|| self.places.enlist(claim.owner));
        let shared = self.connections.here().await?;
        let high = self.connections.high();
        let opened = self.pushes.is_up(&claim.key).then(|| self.pushes.opened());
        let sent = self.clock.now();
        let answer = self
            .connections
            .script(&shared, &SHARED_SCRIPTS.ask, |command| {
                start(command, claim).arg(letter(claim.mode)).arg(millis(claim.ttl)).arg(claim.note.as_str());
                command.arg(&*self.pushes.process).arg(self.entry(claim).grant_ms).arg(lease);
            })
            .await?;
        let [Value::Int(outcome), second, Value::Int(server_us), Value::Int(last), unheard @ ..] = as_array(&answer)?
        else {
            return Err(fault::unexpected(&answer));
        };
        if let Some(opened) = opened.filter(|_| !unheard.is_empty()) {
            self.pushes.unheard(&claim.key, opened);
        }
        match (outcome, second) {
            (1, token) => {
                let kept_place = place.map(|place| {
                    place.won();
                    self.kept_place(claim)
                });
                let hold = self.granted(claim, token, high, sent, kept_place).await?;
                let slot = u32::try_from(*last).map_err(|_| fault::unexpected(&answer))?;
                Ok(Attempt::Acquired(with_slot(hold, slot)))
            }
            (0, Value::Int(left)) => {
                let ms = |left: i64| Duration::from_millis(u64::try_from(left).unwrap_or_default());
                let wake = match place {
                    None => Wake::poll().ask_by(sent.after(ms(*last))),
                    Some(_) if lease < 0 => Wake::poll().ask_by(sent.after(poll())),
                    Some(place) => {
                        place.anchored(Anchor { sent, server_us: u64::try_from(*server_us).unwrap_or_default() });
                        let news = news(place, self.places.clone(), claim.clone(), self.clock.clone());
                        Wake::on(news).ask_by(sent.after(slow_poll(ms(*last))))
                    }
                };
                Ok(Attempt::Contended(wake.lease_left(ms(*left))))
            }
            (2, _) => Err(fault::conflict()),
            _ => Err(fault::unexpected(&answer)),
        }
    }

    /// Ends the hold. Its share stays taken for `keep` milliseconds.
    pub(crate) async fn end_share(&self, claim: &Claim, keep: u64) -> Result<Released> {
        let shared = self.connections.here().await?;
        released(&self.end_on(&shared, claim, keep, "").await?)
    }

    /// Leaves the wait queue, and ends the hold.
    pub(crate) async fn leave_shares(&self, shared: &Arc<Connection>, claim: &Claim) -> Result<Result<()>> {
        let (process, grant, mode) = (&self.pushes.process, self.entry(claim).grant_ms, letter(claim.mode));
        let entry = format!("{process} {grant} {mode} {} {}", claim.owner.to_hex(), claim.note);
        Ok(released(&self.end_on(shared, claim, 0, &entry).await?).map(drop))
    }

    async fn end_on(&self, shared: &Arc<Connection>, claim: &Claim, keep: u64, entry: &str) -> Result<Value> {
        let build = |command: &mut Cmd| {
            start(command, claim).arg(keep).arg(entry);
        };
        self.connections.script(shared, &SHARED_SCRIPTS.end, build).await
    }

    /// Draws a new token for a held share, after the counter was set back.
    pub(crate) async fn repair_share(&self, shared: &Arc<Connection>, claim: &Claim, high: u64) -> Result<Value> {
        let build = |command: &mut Cmd| {
            start(command, claim).arg(high);
        };
        self.connections.script(shared, &SHARED_SCRIPTS.repair, build).await
    }
}

/// Adds what the renewal of a share takes.
pub(crate) fn renewal(command: &mut Cmd, claim: &Claim) {
    start(command, claim).arg(millis(claim.ttl));
}

/// The arguments that all scripts of shares begin with.
fn start<'a>(command: &'a mut Cmd, claim: &Claim) -> &'a mut Cmd {
    on(command, LockName(&claim.key)).arg(Marker(claim.mode)).arg(claim.owner.to_hex())
}
