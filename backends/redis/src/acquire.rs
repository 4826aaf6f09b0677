//! One attempt: for the lock, then for a place in its line.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value};
use dlock_contract::{Attempt, BootInstant, Claim, Error, ErrorKind, Hold, Mode, Result, Stand, Validity, Wake};

use super::connection::{Connection, Connections, on};
use super::fault;
use super::grant::Anchor;
use super::layout::{self, Name};
use super::line::{self, PLACE_LEASE, Place, Seat};
use super::options::is_plain;
use super::scripts::{FENCE, LEAST_TOKEN, SCRIPTS, TOKEN_END};
use super::store::Redis;
use super::units::millis;

/// How often to ask where the server cannot push.
const POLL: Duration = Duration::from_millis(100);

/// The same for one of many.
pub(super) fn poll() -> Duration {
    POLL.mul_f64(0.5 + fastrand::f64())
}

impl Redis {
    pub(super) async fn attempt(&self, shared: Arc<Connection>, claim: &Arc<Claim>, stand: Stand) -> Result<Attempt> {
        if !is_plain(claim) {
            return Box::pin(self.attempt_with_options(claim, stand)).await;
        }
        let standing = matches!(stand, Stand::Until(_));
        // In boxes, as all that an uncontended call does not need: its future stays small.
        if self.places.has(&claim.owner) {
            return Box::pin(self.ask_from_place(claim)).await;
        }
        let known = standing && self.contended.is(&claim.key, self.clock.now());
        if !known && let Some(hold) = self.ask_lock(&shared, claim).await? {
            return Ok(Attempt::Acquired(hold));
        }
        if standing && (self.pushes.is_up(&claim.key) || Box::pin(self.pushes.come_up(&claim.key)).await) {
            return Box::pin(self.ask_line(claim)).await;
        }
        if known {
            let shared = self.connections.here().await?;
            if let Some(hold) = self.ask_lock(&shared, claim).await? {
                return Ok(Attempt::Acquired(hold));
            }
        }
        Box::pin(self.look(claim)).await
    }

    /// Asks for the lock itself: two plain commands in one go, which cost the server half of what a script does. The
    /// order of the two makes the token right without a transaction: who won the lock draws after all earlier winners.
    async fn ask_lock(&self, shared: &Arc<Connection>, claim: &Arc<Claim>) -> Result<Option<Hold>> {
        let high = self.connections.high();
        let from = self.clock.now();
        let mut set = Cmd::with_capacity(6, 256);
        set.arg("SET").arg(Name(&claim.key)).arg(layout::Value(claim)).arg("NX").arg("PX").arg(millis(claim.ttl));
        let answers = self.connections.drawing(shared, set).await?;
        let [found, token] = &answers[..] else { return Err(fault::unexpected(&Value::Nil)) };
        match found {
            Value::Okay => self.granted(claim, token, high, from, None).await.map(Some),
            Value::Nil => Ok(None),
            other => Err(fault::unexpected(other)),
        }
    }

    /// Looks at who has the lock, without a place in its line. It may be ours: the answer to an earlier attempt was lost.
    async fn look(&self, claim: &Arc<Claim>) -> Result<Attempt> {
        let shared = self.connections.here().await?;
        let high = self.connections.high();
        let sent = self.clock.now();
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.look, |command| {
                on(command, Name(&claim.key)).arg(layout::Value(claim)).arg(millis(claim.ttl));
            })
            .await?;
        match said(&answer)? {
            (Said::Ours(token), _) => {
                // That attempt may have stood in the line too, and then a push may come still.
                self.places.enlist(claim.owner).won();
                let hold = self.granted(claim, token, high, sent, Some(self.seat(claim))).await?;
                Ok(Attempt::Acquired(hold))
            }
            (Said::Taken(left) | Said::Behind(left) | Said::Silent(left, _), _) => {
                let soon = self.clock.now().after(poll());
                Ok(Attempt::Contended(Wake::poll().ask_by(soon).lease_left(left)))
            }
        }
    }

    /// Asks for the lock or else for a place in its line.
    pub(super) async fn ask_line(&self, claim: &Arc<Claim>) -> Result<Attempt> {
        // There before the request leaves: the news may be faster than the answer.
        let place = self.places.enlist(claim.owner);
        let shared = self.connections.here().await?;
        let high = self.connections.high();
        let opened = self.pushes.is_up(&claim.key).then(|| self.pushes.opened());
        let sent = self.clock.now();
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.ask, |command| {
                on(command, Name(&claim.key)).arg(layout::Value(claim)).arg(self.entry(claim));
                command.arg(&*self.pushes.process).arg(millis(claim.ttl)).arg(millis(PLACE_LEASE));
            })
            .await?;
        if let (Some(opened), Value::Array(parts)) = (opened, &answer)
            && parts.get(3) == Some(&Value::Int(0))
        {
            self.pushes.unheard(&claim.key, opened);
        }
        let asked = Asked { place, high, sent, granted: claim.ttl };
        self.settle(claim, asked, &answer).await
    }

    /// The same for one that has a place already. Whatever becomes of the pushes, it is served from its place: a lock that
    /// was won beside it would leave the place behind, and later pushes would be taken for awaited.
    pub(super) async fn ask_from_place(&self, claim: &Arc<Claim>) -> Result<Attempt> {
        if !self.pushes.is_up(&claim.key) {
            self.pushes.come_up(&claim.key).await;
        }
        self.ask_line(claim).await
    }

    /// What the line's answer comes to.
    pub(super) async fn settle(&self, claim: &Arc<Claim>, asked: Asked, answer: &Value) -> Result<Attempt> {
        let Asked { place, high, sent, granted } = asked;
        match said(answer)? {
            (Said::Ours(token), _) => {
                place.won();
                let mut hold = self.granted(claim, token, high, sent, Some(self.seat(claim))).await?;
                hold.validity.granted = granted;
                Ok(Attempt::Acquired(hold))
            }
            (said @ (Said::Taken(left) | Said::Behind(left) | Said::Silent(left, _)), server_us) => {
                self.contended.note(&claim.key, sent);
                self.strangers.note(&claim.key, tells_of_stranger(answer), sent);
                place.anchored(Anchor { sent, server_us });
                let news = line::news(place, self.places.clone(), claim.clone(), self.clock.clone());
                let again = match said {
                    Said::Silent(_, soon) => poll().min(left.saturating_add(Duration::from_millis(1))).min(soon),
                    // Who cannot hear of a release asks often.
                    _ if !self.pushes.is_up(&claim.key) => poll().min(line::slow_poll(left)),
                    _ => line::slow_poll(left),
                };
                Ok(Attempt::Contended(Wake::on(news).ask_by(sent.after(again)).lease_left(left)))
            }
        }
    }

    /// Makes a hold of a lock that is ours and of the token drawn for it.
    pub(super) async fn granted(
        &self,
        claim: &Arc<Claim>,
        token: &Value,
        high: u64,
        from: BootInstant,
        seat: Option<Arc<Seat>>,
    ) -> Result<Hold> {
        let mut token = as_token(token);
        // Below what this process has seen, or below the server's clock: the server has forgotten. Drawn anew, once.
        if token.as_ref().is_ok_and(|token| *token < LEAST_TOKEN || Connections::is_behind(*token, high)) {
            token = Box::pin(self.repair(claim, high)).await;
        }
        match token {
            Ok(token) if (LEAST_TOKEN..TOKEN_END).contains(&token) => {
                self.connections.saw(token);
                let hold = Hold::new(claim.clone(), token, Validity { from, granted: claim.ttl })?;
                Ok(match seat {
                    Some(seat) => hold.with_session(seat),
                    None => hold,
                })
            }
            // The core gives the lock back: without a token it would only stand in everybody's way.
            Err(error) => Err(error),
            Ok(token) => Err(fault::bad_token(token)),
        }
    }

    async fn repair(&self, claim: &Claim, high: u64) -> Result<u64> {
        let shared = self.connections.here().await?;
        let repair = self.connections.script(&shared, &SCRIPTS.repair, |command| {
            command.arg(2).arg(Name(&claim.key)).arg(FENCE).arg(layout::Value(claim)).arg(high);
        });
        let answer = match claim.mode {
            Mode::Exclusive => repair.await?,
            _ => self.repair_share(&shared, claim, high).await?,
        };
        match as_token(&answer)? {
            0 => Err(Error::outage("Redis forgot the lock at the moment it was granted")),
            token => Ok(token),
        }
    }

    pub(super) fn seat(&self, claim: &Claim) -> Arc<Seat> {
        Arc::new(Seat { places: self.places.clone(), owner: claim.owner })
    }
}

/// A request that has asked for a lock or a place in its line.
pub(super) struct Asked {
    pub(super) place: Arc<Place>,
    /// The highest token seen before it left, and when it left.
    pub(super) high: u64,
    pub(super) sent: BootInstant,
    /// For how long a free lock is granted.
    pub(super) granted: Duration,
}

/// What a script says of the lock.
enum Said<'a> {
    /// It is ours; with the token drawn for it.
    Ours(&'a Value),
    /// Somebody else's, for so long if nobody renews it.
    Taken(Duration),
    /// The same, or nobody's as long as the strangers' turn lasts; somebody before us finds out when that is over.
    Behind(Duration),
    /// The same, but it is for us to find out, and not later than after so long.
    Silent(Duration, Duration),
}

/// With the server's time in µs.
fn said(answer: &Value) -> Result<(Said<'_>, u64)> {
    let Value::Array(parts) = answer else { return Err(fault::unexpected(answer)) };
    let [Value::Int(outcome), second, Value::Int(server_us), ..] = &parts[..] else {
        return Err(fault::unexpected(answer));
    };
    let ms = |left: &i64| Duration::from_millis(u64::try_from(*left).unwrap_or_default());
    let said = match (outcome, second) {
        (1, token) => Said::Ours(token),
        (0, Value::Int(left)) => Said::Taken(ms(left)),
        (5 | 7, Value::Int(left)) => {
            let soon = match parts.get(3) {
                Some(Value::Int(soon @ 1..)) => ms(soon),
                _ => POLL.mul_f64(2.0),
            };
            Said::Silent(ms(left), soon)
        }
        (6 | 8, Value::Int(left)) => Said::Behind(ms(left)),
        (2, _) => return Err(layout::conflict()),
        (3, _) => {
            return Err(Error::new(ErrorKind::CorruptState, "the lock in Redis has no lease, so it would never end"));
        }
        _ => return Err(fault::unexpected(answer)),
    };
    Ok((said, u64::try_from(*server_us).unwrap_or_default()))
}

/// Was a stranger seen lately? A turn that only finds out whether there is one tells of none.
fn tells_of_stranger(answer: &Value) -> bool {
    matches!(answer, Value::Array(parts) if matches!(parts.first(), Some(Value::Int(5 | 6))))
}

pub(super) fn as_array(answer: &Value) -> Result<&[Value]> {
    match answer {
        Value::Array(parts) => Ok(parts),
        other => Err(fault::unexpected(other)),
    }
}

fn as_token(answer: &Value) -> Result<u64> {
    match answer {
        Value::Int(token) => u64::try_from(*token).map_err(|_| fault::unexpected(answer)),
        other => Err(fault::unexpected(other)),
    }
}
