//! Readers, writers and permits: locks that several may hold, each with a lease of its own.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, RedisWrite, ToRedisArgs, Value};
use dlock_contract::{Attempt, Claim, Hold, Mode, Released, Result, Stand, Wake};

use super::acquire::{as_array, poll};
use super::connection::{Connection, on};
use super::fault;
use super::grant::Anchor;
use super::hold::released;
use super::layout::{self, Name};
use super::line;
use super::scripts_shares::{MARKER, SCRIPTS};
use super::store::Redis;
use super::units::millis;

/// How long a place lasts without a new request. Shorter than an exclusive lock's, since here one that is gone keeps
/// others out while there is room for them.
pub(super) const PLACE_LEASE: i64 = 3000;

/// What stands under the lock's name: its family.
pub(super) struct Marker(pub(super) Mode);

impl ToRedisArgs for Marker {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        match self.0 {
            Mode::Permits(most) => out.write_arg_fmt(format_args!("{MARKER}permits:{most}")),
            _ => out.write_arg_fmt(format_args!("{MARKER}rw")),
        }
    }
}

const fn letter(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "r",
        Mode::Permits(_) => "p",
        _ => "w",
    }
}

impl Redis {
    pub(super) async fn ask_for_share(&self, claim: &Arc<Claim>, stand: Stand) -> Result<Attempt> {
        if stand == Stand::No {
            return self.ask_shares(claim, 0).await;
        }
        let known = self.pushes.is_up(&claim.key) || self.places.has(&claim.owner);
        if !known {
            // Nobody may be there, and then nothing needs to be opened.
            let answer = self.ask_shares(claim, 0).await?;
            if !matches!(answer, Attempt::Contended(_)) {
                return Ok(answer);
            }
        }
        // Where nothing can be pushed, one stands in line all the same, and polls.
        let place = if self.pushes.is_up(&claim.key) || self.pushes.come_up(&claim.key).await {
            PLACE_LEASE
        } else {
            -PLACE_LEASE
        };
        self.ask_shares(claim, place).await
    }

    async fn ask_shares(&self, claim: &Arc<Claim>, lease: i64) -> Result<Attempt> {
        // There before the request leaves: the news may be faster than the answer.
        let place = (lease != 0).then(|| self.places.enlist(claim.owner));
        let shared = self.connections.here().await?;
        let high = self.connections.high();
        let opened = self.pushes.is_up(&claim.key).then(|| self.pushes.opened());
        let sent = self.clock.now();
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.ask, |command| {
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
                let seat = place.map(|place| {
                    place.won();
                    self.seat(claim)
                });
                let hold = self.granted(claim, token, high, sent, seat).await?;
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
                        let news = line::news(place, self.places.clone(), claim.clone(), self.clock.clone());
                        Wake::on(news).ask_by(sent.after(line::slow_poll(ms(*last))))
                    }
                };
                Ok(Attempt::Contended(wake.lease_left(ms(*left))))
            }
            (2, _) => Err(layout::conflict()),
            _ => Err(fault::unexpected(&answer)),
        }
    }

    /// Ends the hold; its share stays taken for so many milliseconds.
    pub(super) async fn end_share(&self, claim: &Claim, keep: u64) -> Result<Released> {
        let shared = self.connections.here().await?;
        released(&self.end_on(&shared, claim, keep, "").await?)
    }

    /// Leaves the line, and ends the hold.
    pub(super) async fn leave_shares(&self, shared: &Arc<Connection>, claim: &Claim) -> Result<Result<()>> {
        let (process, grant, mode) = (&self.pushes.process, self.entry(claim).grant_ms, letter(claim.mode));
        let entry = format!("{process} {grant} {mode} {} {}", claim.owner.to_hex(), claim.note);
        Ok(released(&self.end_on(shared, claim, 0, &entry).await?).map(drop))
    }

    async fn end_on(&self, shared: &Arc<Connection>, claim: &Claim, keep: u64, entry: &str) -> Result<Value> {
        let build = |command: &mut Cmd| {
            start(command, claim).arg(keep).arg(entry);
        };
        self.connections.script(shared, &SCRIPTS.end, build).await
    }

    /// A new token for a share that is ours, after the counter was set back.
    pub(super) async fn repair_share(&self, shared: &Arc<Connection>, claim: &Claim, high: u64) -> Result<Value> {
        let build = |command: &mut Cmd| {
            start(command, claim).arg(high);
        };
        self.connections.script(shared, &SCRIPTS.repair, build).await
    }
}

/// Adds what the renewal of a share takes.
pub(super) fn renewal(command: &mut Cmd, claim: &Claim) {
    start(command, claim).arg(millis(claim.ttl));
}

/// What all scripts of shares begin with.
fn start<'a>(command: &'a mut Cmd, claim: &Claim) -> &'a mut Cmd {
    on(command, Name(&claim.key)).arg(Marker(claim.mode)).arg(claim.owner.to_hex())
}

pub(super) fn with_slot(hold: Hold, slot: u32) -> Hold {
    if matches!(hold.claim.mode, Mode::Permits(_)) { hold.with_slot(slot) } else { hold }
}
