//! One attempt of a plain claim: first for the lock, then for a place in its wait queue.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value};
use dlock_contract::{Attempt, BootInstant, Claim, Error, ErrorKind, Hold, Mode, Note, Queue, Result, Validity, Wake};

use crate::connections::connection::Connection;
use crate::connections::pool::Connections;
use crate::layout::name::LockName;
use crate::layout::token::{FENCE, LEAST_TOKEN, TOKEN_END};
use crate::layout::units::millis;
use crate::layout::value::{LockValue, MARK};
use crate::lock::store::{Redis, is_plain};
use crate::queue::grant::Anchor;
use crate::queue::limits::{PLACE_LEASE, POLL_INTERVAL, poll, slow_poll};
use crate::queue::places::{KeptPlace, Place, news};
use crate::reply::fault;
use crate::scripts::call::on;
use crate::scripts::exclusive::SCRIPTS;

impl Redis {
    pub(crate) async fn attempt(&self, shared: Arc<Connection>, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        if !is_plain(claim) {
            return Box::pin(self.attempt_with_options(claim, queue)).await;
        }
        let until = wait_end(queue);
        // Boxed, because the uncontended path does not need it. This keeps the future small.
        if self.places.has(&claim.owner) {
            return Box::pin(self.ask_from_place(claim, until)).await;
        }
        let known = until.is_some() && self.contended.is(&claim.key, self.clock.now());
        if !known && let Some(hold) = self.ask_lock(&shared, claim).await? {
            return Ok(Attempt::Acquired(hold));
        }
        if let Some(until) = until
            && (self.pushes.is_up(&claim.key) || Box::pin(self.pushes.come_up(&claim.key, until)).await)
        {
            return Box::pin(self.ask_queue(claim)).await;
        }
        if known {
            let shared = self.connections.here().await?;
            if let Some(hold) = self.ask_lock(&shared, claim).await? {
                return Ok(Attempt::Acquired(hold));
            }
        }
        Box::pin(self.look(claim)).await
    }

    /// Asks for the lock alone: two plain commands sent together, which cost the server half of what a script costs. Their
    /// order makes the token right without a transaction: a winner draws its token after all earlier winners.
    async fn ask_lock(&self, shared: &Arc<Connection>, claim: &Arc<Claim>) -> Result<Option<Hold>> {
        let high = self.connections.high();
        let from = self.clock.now();
        let mut set = Cmd::with_capacity(6, 256);
        set.arg("SET").arg(LockName(&claim.key)).arg(LockValue(claim)).arg("NX").arg("PX").arg(millis(claim.ttl));
        let answers = self.connections.drawing(shared, set).await?;
        let [found, token] = &answers[..] else { return Err(fault::unexpected(&Value::Nil)) };
        match found {
            Value::Okay => self.granted(claim, token, high, from, None).await.map(Some),
            Value::Nil => Ok(None),
            other => Err(fault::unexpected(other)),
        }
    }

    /// Reads who holds the lock and joins no queue. The holder may be this claim: the reply to an earlier attempt was lost.
    async fn look(&self, claim: &Arc<Claim>) -> Result<Attempt> {
        let shared = self.connections.here().await?;
        let high = self.connections.high();
        let sent = self.clock.now();
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.look, |command| {
                on(command, LockName(&claim.key)).arg(LockValue(claim)).arg(millis(claim.ttl));
            })
            .await?;
        if answer == Value::Nil {
            // The lease has ended since it was asked for, and it may have been this claim's own.
            let hold = self.ask_lock(&shared, claim).await?;
            let soon = || Wake::poll().ask_by(self.clock.now().after(poll()));
            return Ok(hold.map_or_else(|| Attempt::Contended(soon()), Attempt::Acquired));
        }
        match read_queue_reply(&answer)? {
            (QueueReply::Ours(token), _) => {
                // The earlier attempt may also have joined the wait queue, so a push may still arrive.
                self.places.enlist(claim.owner).won();
                let hold = self.granted(claim, token, high, sent, Some(self.kept_place(claim))).await?;
                Ok(Attempt::Acquired(hold))
            }
            (QueueReply::Taken(left) | QueueReply::Behind(left) | QueueReply::Silent(left, _), _) => {
                let soon = self.clock.now().after(poll());
                let wake = Wake::poll().ask_by(soon).lease_left(left);
                Ok(Attempt::Contended(wake.held_by(holder_in(&answer, 3))))
            }
        }
    }

    /// Asks for the lock, or else for a place in its wait queue.
    pub(crate) async fn ask_queue(&self, claim: &Arc<Claim>) -> Result<Attempt> {
        // The place exists before the request leaves, because a push may arrive before the reply.
        let place = self.places.enlist(claim.owner);
        let shared = self.connections.here().await?;
        let high = self.connections.high();
        let opened = self.pushes.is_up(&claim.key).then(|| self.pushes.opened());
        let sent = self.clock.now();
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.ask, |command| {
                on(command, LockName(&claim.key)).arg(LockValue(claim)).arg(self.entry(claim));
                command.arg(&*self.pushes.process).arg(millis(claim.ttl)).arg(millis(PLACE_LEASE));
            })
            .await?;
        if let (Some(opened), Value::Array(parts)) = (opened, &answer)
            && parts.get(3) == Some(&Value::Int(0))
        {
            self.pushes.unheard(&claim.key, opened);
        }
        let request = QueueRequest { place, high, sent, granted: claim.ttl };
        self.read_queue_answer(claim, request, &answer).await
    }

    /// Asks again for a claim that has a place in the wait queue. It keeps using that place, even without pushes: a lock that
    /// was won in another way would leave the place behind, and later pushes would look awaited.
    pub(crate) async fn ask_from_place(&self, claim: &Arc<Claim>, until: Option<BootInstant>) -> Result<Attempt> {
        if let Some(until) = until
            && !self.pushes.is_up(&claim.key)
        {
            self.pushes.come_up(&claim.key, until).await;
        }
        self.ask_queue(claim).await
    }

    /// Turns the reply of the wait queue into an attempt.
    pub(crate) async fn read_queue_answer(
        &self,
        claim: &Arc<Claim>,
        request: QueueRequest,
        answer: &Value,
    ) -> Result<Attempt> {
        let QueueRequest { place, high, sent, granted } = request;
        match read_queue_reply(answer)? {
            (QueueReply::Ours(token), _) => {
                place.won();
                let mut hold = self.granted(claim, token, high, sent, Some(self.kept_place(claim))).await?;
                hold.validity.granted = granted;
                Ok(Attempt::Acquired(hold))
            }
            (reply @ (QueueReply::Taken(left) | QueueReply::Behind(left) | QueueReply::Silent(left, _)), server_us) => {
                self.contended.note(&claim.key, sent);
                self.foreign_clients.note(&claim.key, tells_of_foreign_client(answer), sent);
                place.anchored(Anchor { sent, server_us });
                let news = news(place, self.places.clone(), claim.clone(), self.clock.clone());
                let ask_after = match reply {
                    QueueReply::Silent(_, soon) => poll().min(left.saturating_add(Duration::from_millis(1))).min(soon),
                    // Without pushes the waiter does not hear of a release, so it asks often.
                    _ if !self.pushes.is_up(&claim.key) => poll().min(slow_poll(left)),
                    _ => slow_poll(left),
                };
                let wake = Wake::on(news).ask_by(sent.after(ask_after)).lease_left(left);
                Ok(Attempt::Contended(wake.held_by(holder_in(answer, 4))))
            }
        }
    }

    /// Makes a hold of a granted lock and the token that was drawn for it.
    pub(crate) async fn granted(
        &self,
        claim: &Arc<Claim>,
        token: &Value,
        high: u64,
        from: BootInstant,
        kept_place: Option<Arc<KeptPlace>>,
    ) -> Result<Hold> {
        let mut token = as_token(token);
        // The token is lower than one seen before, or lower than the server's clock: the server has lost its data. Draw a new
        // token, once.
        if token.as_ref().is_ok_and(|token| *token < LEAST_TOKEN || Connections::is_behind(*token, high)) {
            token = Box::pin(self.repair(claim, high)).await;
        }
        match token {
            Ok(token) if (LEAST_TOKEN..TOKEN_END).contains(&token) => {
                self.connections.saw(token);
                let hold = Hold::new(claim.clone(), token, Validity::new(from, claim.ttl))?;
                Ok(match kept_place {
                    Some(kept_place) => hold.with_session(kept_place),
                    None => hold,
                })
            }
            // The engine releases the lock: a lock without a token only keeps others out.
            Err(error) => Err(error),
            Ok(token) => Err(fault::bad_token(token)),
        }
    }

    async fn repair(&self, claim: &Claim, high: u64) -> Result<u64> {
        let shared = self.connections.here().await?;
        let repair = self.connections.script(&shared, &SCRIPTS.repair, |command| {
            command.arg(2).arg(LockName(&claim.key)).arg(FENCE).arg(LockValue(claim)).arg(high);
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

    pub(crate) fn kept_place(&self, claim: &Claim) -> Arc<KeptPlace> {
        Arc::new(KeptPlace { places: self.places.clone(), owner: claim.owner })
    }
}

/// The end of the caller's wait; `None` if it does not wait.
pub(crate) fn wait_end(queue: Queue) -> Option<BootInstant> {
    match queue {
        Queue::Join { until, .. } => Some(until),
        Queue::Leave => None,
    }
}

/// A request that was sent for a lock or for a place in its wait queue.
pub(crate) struct QueueRequest {
    pub(crate) place: Arc<Place>,
    /// The highest token seen before it left, and when it left.
    pub(crate) high: u64,
    pub(crate) sent: BootInstant,
    /// How long a free lock is granted.
    pub(crate) granted: Duration,
}

/// The reply of a script about the lock.
enum QueueReply<'a> {
    /// The lock is held by this claim; with the token that was drawn for it.
    Ours(&'a Value),
    /// The lock is held by another owner; its lease ends after this time unless it is renewed.
    Taken(Duration),
    /// Contended behind a foreign client, or during the turn of foreign clients. An earlier waiter finds out when that
    /// ends.
    Behind(Duration),
    /// Like the case before, but this claim is the first waiter and must find out. It asks again after the second time
    /// at the latest.
    Silent(Duration, Duration),
}

/// Reads the reply, and the server's time in µs.
fn read_queue_reply(answer: &Value) -> Result<(QueueReply<'_>, u64)> {
    let Value::Array(parts) = answer else { return Err(fault::unexpected(answer)) };
    let [Value::Int(outcome), second, Value::Int(server_us), ..] = &parts[..] else {
        return Err(fault::unexpected(answer));
    };
    let ms = |left: &i64| Duration::from_millis(u64::try_from(*left).unwrap_or_default());
    let reply = match (outcome, second) {
        (1, token) => QueueReply::Ours(token),
        (0, Value::Int(left)) => QueueReply::Taken(ms(left)),
        (5 | 7, Value::Int(left)) => {
            let soon = match parts.get(3) {
                Some(Value::Int(soon @ 1..)) => ms(soon),
                _ => POLL_INTERVAL.mul_f64(2.0),
            };
            QueueReply::Silent(ms(left), soon)
        }
        (6 | 8, Value::Int(left)) => QueueReply::Behind(ms(left)),
        (2, _) => return Err(fault::conflict()),
        (3, _) => {
            return Err(Error::new(ErrorKind::CorruptState, "the lock in Redis has no lease, so it would never end"));
        }
        _ => return Err(fault::unexpected(answer)),
    };
    Ok((reply, u64::try_from(*server_us).unwrap_or_default()))
}

/// Whether the server has seen a foreign client lately. A turn that only looks for one does not count.
fn tells_of_foreign_client(answer: &Value) -> bool {
    matches!(answer, Value::Array(parts) if matches!(parts.first(), Some(Value::Int(5 | 6))))
}

/// The note of the holder in a reply, at this place. It is empty for a foreign client's lock, and missing if the lock was free.
fn holder_in(answer: &Value, place: usize) -> Option<Note> {
    let Value::Array(parts) = answer else { return None };
    let Some(Value::BulkString(note)) = parts.get(place) else { return None };
    let note = String::from_utf8_lossy(note);
    let own_note = note.strip_suffix(MARK).unwrap_or(&note);
    Some(Note::from_stored(if own_note.is_empty() { Note::FOREIGN_CLIENT } else { own_note }))
}

fn as_token(answer: &Value) -> Result<u64> {
    match answer {
        Value::Int(token) => u64::try_from(*token).map_err(|_| fault::unexpected(answer)),
        other => Err(fault::unexpected(other)),
    }
}
