//! Redis 7.0 or newer, one primary.
//!
//! An uncontended cycle is two round trips: `SET NX GET PX` with `INCR` of the fencing counter in one go, and a
//! compare-and-delete. Who finds the lock taken may stand in a line in the server; a release hands the lock to the
//! head of the line and pushes the news to its process.
//!
//! What the server's memory forgets (a restart without its file, a failover to a replica that lags, `FLUSHALL`), it
//! forgets of locks too: use the fencing token where that matters. Leases run by the server's wall clock.

mod check;
mod connection;
pub(crate) mod fault;
mod layout;
mod line;
mod push;
mod scripts;
mod target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value};
use futures::future::BoxFuture;

use crate::backend::{Attempt, Backend, Claim, Hold, Released, Stand, Standing, Validity, Wake};
use crate::capabilities::{Capabilities, Durability, Expiry, Fencing, TtlRange, WakeStyle};
use crate::clock::{BootInstant, Clock};
use crate::error::{Error, ErrorKind, Result};
use crate::key::{LockKey, MAX_KEY_BYTES};
use crate::note::Note;
use crate::owner::Owner;
use connection::{Connections, call, is_unknown_script, on};
use layout::{Entry, Name};
use line::{Anchor, Contended, GRANT_LIMIT, PLACE_LEASE, Places, Seat};
use push::Pushes;
use scripts::{FENCE, LEAST_TOKEN, SCRIPTS, TOKEN_END};
use target::Target;

/// So many holds are renewed by one request at most; more would hold up everybody else's commands.
const BATCH: usize = 100;

/// How often to ask where the server cannot push.
const POLL: Duration = Duration::from_millis(100);

/// Locks in one Redis server.
pub struct Redis {
    connections: Arc<Connections>,
    places: Arc<Places>,
    pushes: Pushes,
    contended: Contended,
    capabilities: Capabilities,
    clock: Clock,
}

/// Opens the server behind a URL.
pub(crate) async fn open(url: &str, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Redis::connect(url, clock).await?))
}

impl Redis {
    /// Connects to `redis://[user:password@]host[:port][/db]` or `unix:///path[?db=…&user=…&pass=…]`.
    ///
    /// In a user or password, `@ : / % # ?` are percent-encoded. `?eviction=allow` accepts a server that may evict
    /// locks when its memory is full.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] for a URL that cannot be used and for a server that may evict locks;
    /// [`ErrorKind::Unsupported`] below Redis 7.0 and in a cluster; [`ErrorKind::NotPrimary`] for a replica;
    /// [`ErrorKind::PermissionDenied`]; [`ErrorKind::Outage`] if there is no answer.
    pub async fn connect(url: &str, clock: &Clock) -> Result<Self> {
        let target = Target::parse(url)?;
        // Our thread runs the timers that bound what follows.
        crate::background::background()?;
        let connections = Arc::new(Connections::new(target, clock.clone()));
        check::check(&connections).await?;
        let places = Arc::<Places>::default();
        let process: Arc<str> = Owner::fresh()?.to_hex().get(..16).unwrap_or_default().into();
        Ok(Self {
            pushes: Pushes::new(connections.clone(), places.clone(), process),
            connections,
            places,
            contended: Contended::default(),
            capabilities: capabilities(),
            clock: clock.clone(),
        })
    }

    /// Asks for the lock itself: two plain commands in one go, which cost the server half of what a script does. The
    /// order of the two makes the token right without a transaction: who won the lock draws after all earlier winners.
    async fn ask_lock(&self, claim: &Arc<Claim>) -> Result<Option<Hold>> {
        let shared = self.connections.here().await?;
        let high = self.connections.high();
        let from = self.clock.now();
        let mut set = Cmd::with_capacity(7, 512);
        set.arg("SET")
            .arg(Name(&claim.key))
            .arg(layout::Value(claim))
            .arg("NX")
            .arg("GET")
            .arg("PX")
            .arg(ttl_ms(claim));
        let mut pipeline = ::redis::Pipeline::with_capacity(2);
        pipeline.add_command(set).cmd("INCR").arg(FENCE);
        let answers = self.connections.pipeline(&shared, &pipeline).await?;
        let [found, token] = &answers[..] else { return Err(fault::unexpected(&Value::Nil)) };
        match found {
            Value::Nil => self.granted(claim, token, high, from, None).await.map(Some),
            Value::BulkString(value) => match layout::owner_of(value) {
                None => Err(layout::conflict()),
                // The answer to an earlier attempt was lost. The lock has been ours all the time, so the token is too.
                Some(owner) if owner == claim.owner => {
                    let from = self.clock.now();
                    match self.renew_one(claim).await? {
                        true => {
                            self.places.enlist(owner).won();
                            self.granted(claim, token, high, from, Some(self.seat(claim))).await.map(Some)
                        }
                        false => Ok(None),
                    }
                }
                Some(_) => Ok(None),
            },
            other => Err(fault::unexpected(other)),
        }
    }

    /// Makes a hold of a lock that is ours and of the token drawn for it; gives the lock back if the token is bad.
    async fn granted(
        &self,
        claim: &Arc<Claim>,
        token: &Value,
        high: u64,
        from: BootInstant,
        seat: Option<Arc<Seat>>,
    ) -> Result<Hold> {
        let mut token = as_token(token);
        // Below what this process has seen, or below the server's clock: the server has forgotten. Drawn anew, once.
        if token.as_ref().is_ok_and(|token| *token < LEAST_TOKEN || *token <= high) {
            token = self.repair(claim, high).await;
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
            bad => {
                // Without a token the lock would only stand in everybody's way.
                self.give_up(claim, None).await?;
                Err(match bad {
                    Err(error) => error,
                    Ok(token) if token >= TOKEN_END => {
                        Error::new(ErrorKind::FenceExhausted, "the fencing counter in Redis has left its range")
                    }
                    Ok(_) => Error::new(
                        ErrorKind::FenceRegression,
                        "the fencing counter in Redis cannot be set: the server's clock is before 2005",
                    ),
                })
            }
        }
    }

    async fn repair(&self, claim: &Claim, high: u64) -> Result<u64> {
        let shared = self.connections.here().await?;
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.repair, |command| {
                command.arg(2).arg(Name(&claim.key)).arg(FENCE).arg(layout::Value(claim)).arg(high);
            })
            .await?;
        match as_token(&answer)? {
            0 => Err(Error::outage("Redis forgot the lock at the moment it was granted")),
            token => Ok(token),
        }
    }

    /// Asks for the lock or else for a place in its line.
    async fn ask_line(&self, claim: &Arc<Claim>) -> Result<Attempt> {
        // There before the request leaves: the news may be faster than the answer.
        let place = self.places.enlist(claim.owner);
        let shared = self.connections.here().await?;
        let high = self.connections.high();
        let sent = self.clock.now();
        let lease = u64::try_from(PLACE_LEASE.as_millis()).unwrap_or(u64::MAX);
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.ask, |command| {
                on(command, Name(&claim.key)).arg(layout::Value(claim)).arg(self.entry(claim));
                command.arg(&*self.pushes.process).arg(ttl_ms(claim)).arg(lease);
            })
            .await?;
        let [Value::Int(outcome), second, Value::Int(server_us)] = as_array(&answer)? else {
            return Err(fault::unexpected(&answer));
        };
        match (outcome, second) {
            (1, token) => {
                place.won();
                let hold = self.granted(claim, token, high, sent, Some(self.seat(claim))).await?;
                Ok(Attempt::Acquired(hold))
            }
            (0, Value::Int(left)) => {
                self.contended.note(&claim.key, sent);
                place.anchored(Anchor { sent, server_us: u64::try_from(*server_us).unwrap_or_default() });
                let left = Duration::from_millis(u64::try_from(*left).unwrap_or_default());
                // A slow poll: as the present lease ends, and often enough to hear of a push that was lost.
                let jitter = Duration::from_micros(fastrand::u64(1_000..20_000));
                let poll = GRANT_LIMIT.mul_f64(0.8 + 0.2 * fastrand::f64()).min(left + jitter);
                let news = line::news(place, self.places.clone(), claim.clone(), self.clock.clone());
                Ok(Attempt::Contended(Wake::on(news).ask_by(sent.after(poll)).lease_left(left)))
            }
            (2, _) => Err(layout::conflict()),
            (3, _) => Err(Error::new(ErrorKind::CorruptState, "the lock in Redis has no lease, so it would never end")),
            _ => Err(fault::unexpected(&answer)),
        }
    }

    async fn attempt(&self, claim: &Arc<Claim>, stand: Stand) -> Result<Attempt> {
        let standing = matches!(stand, Stand::Until(_));
        let known = standing && (self.contended.is(&claim.key, self.clock.now()) || self.places.has(&claim.owner));
        if !known {
            if let Some(hold) = self.ask_lock(claim).await? {
                return Ok(Attempt::Acquired(hold));
            }
            if !standing {
                return Ok(Attempt::Contended(Wake::poll()));
            }
        }
        if self.pushes.are_up().await {
            return self.ask_line(claim).await;
        }
        if known && let Some(hold) = self.ask_lock(claim).await? {
            return Ok(Attempt::Acquired(hold));
        }
        let soon = self.clock.now().after(POLL.mul_f64(0.5 + fastrand::f64()));
        Ok(Attempt::Contended(Wake::poll().ask_by(soon)))
    }

    async fn renew_one(&self, claim: &Claim) -> Result<bool> {
        let shared = self.connections.here().await?;
        let answer = self.connections.script(&shared, &SCRIPTS.renew, |command| renewal(command, claim)).await?;
        match answer {
            Value::Int(renewed) => Ok(renewed == 1),
            other => Err(fault::unexpected(&other)),
        }
    }

    async fn renew_batch(&self, holds: &[&Hold]) -> Result<Vec<Result<Standing>>> {
        let shared = self.connections.here().await?;
        let from = self.clock.now();
        let mut answers = Vec::new();
        // The second time by the scripts' text, if the server has lost them.
        for whole in [false, true] {
            let mut pipeline = ::redis::Pipeline::with_capacity(holds.len());
            for hold in holds {
                pipeline.add_command(call(&SCRIPTS.renew, whole, &|command: &mut Cmd| renewal(command, &hold.claim)));
            }
            answers = self.connections.pipeline(&shared, &pipeline).await?;
            if !answers.iter().any(is_unknown_script) {
                break;
            }
        }
        let standing = |(hold, answer): (&&Hold, &Value)| match answer {
            Value::Int(1) => Ok(Standing::Renewed(Validity { from, granted: hold.claim.ttl })),
            Value::Int(0) => Ok(Standing::Lost),
            other if fault::is_wrong_type(other) => Ok(Standing::Lost),
            other => Err(fault::unexpected(other)),
        };
        Ok(holds.iter().zip(&answers).map(standing).collect())
    }

    async fn free(&self, claim: &Claim) -> Result<Released> {
        let shared = self.connections.here().await?;
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.release, |command| {
                on(command, Name(&claim.key)).arg(layout::Value(claim));
            })
            .await?;
        match answer {
            Value::Int(1) => Ok(Released::Released),
            Value::Int(0) => Ok(Released::NotOwner),
            other if fault::is_wrong_type(&other) => Ok(Released::NotOwner),
            other => Err(fault::unexpected(&other)),
        }
    }

    /// Leaves the line and frees the lock. Over the connection of `origin` if that is open: two have no order, and the
    /// request that is to be undone may be on its way still.
    async fn give_up(&self, claim: &Claim, origin: Option<tokio::runtime::Id>) -> Result<()> {
        let ordered = origin.and_then(|origin| self.connections.of(origin));
        if let Some(shared) = ordered {
            // That runtime may be blocked, or end at this moment.
            let limit = self.clock.now().after(GRANT_LIMIT);
            if let Some(Ok(answer)) = self.clock.timeout_at(limit, self.give_up_on(&shared, claim)).await {
                return answer;
            }
        }
        let shared = self.connections.here().await?;
        self.give_up_on(&shared, claim).await?
    }

    async fn give_up_on(
        &self,
        shared: &crate::Opened<Arc<connection::Connection>>,
        claim: &Claim,
    ) -> Result<Result<()>> {
        let answer = self
            .connections
            .script(shared, &SCRIPTS.abandon, |command| {
                on(command, Name(&claim.key)).arg(layout::Value(claim)).arg(self.entry(claim));
            })
            .await?;
        Ok(match answer {
            Value::Int(_) => Ok(()),
            // What stands there is not ours, so nothing of ours is left.
            other if fault::is_wrong_type(&other) => Ok(()),
            other => Err(fault::unexpected(&other)),
        })
    }

    async fn note(&self, key: &LockKey) -> Result<Option<Note>> {
        let shared = self.connections.here().await?;
        let mut get = Cmd::new();
        get.arg("GET").arg(Name(key));
        match self.connections.command(&shared, &get).await? {
            Value::Nil => Ok(None),
            Value::BulkString(value) => layout::note_of(&value).map(Some),
            other => Err(fault::unexpected(&other)),
        }
    }

    fn entry<'a>(&'a self, claim: &'a Claim) -> Entry<'a> {
        // Nobody renews this one, so it must be granted for its full ttl at once.
        let grant = if claim.renewed { claim.ttl.min(GRANT_LIMIT) } else { claim.ttl };
        Entry { process: &self.pushes.process, grant_ms: millis(grant), claim }
    }

    fn seat(&self, claim: &Claim) -> Arc<Seat> {
        Arc::new(Seat { places: self.places.clone(), owner: claim.owner })
    }
}

impl Backend for Redis {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, stand: Stand) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.attempt(claim, stand))
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            let mut standings = Vec::with_capacity(holds.len());
            for batch in holds.chunks(BATCH) {
                match self.renew_batch(batch).await {
                    Ok(answers) => standings.extend(answers),
                    Err(error) => {
                        let again = || {
                            Error::new(error.kind().clone(), "the renewal got no answer")
                                .with_retryable(error.is_retryable())
                        };
                        standings.extend(batch.iter().skip(1).map(|_| Err(again())));
                        standings.push(Err(error));
                    }
                }
            }
            standings
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.free(&hold.claim))
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.places.dismiss(&claim.owner);
            self.give_up(claim, claim.origin).await
        })
    }

    fn holder<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<Note>>> {
        Box::pin(self.note(key))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.pushes.stop();
        self.connections.close();
        Box::pin(async {})
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({:?})", self.connections.target)
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        expiry: Expiry::Lease,
        ttl: TtlRange {
            min: Duration::from_millis(10),
            max: Duration::from_secs(10 * 365 * 86_400),
            step: Duration::from_millis(1),
        },
        expires_alone: true,
        fencing: Fencing::MonotonicUnlessFailover,
        fair: true,
        wake: WakeStyle::Grant,
        connection_per_hold: false,
        // A silent head of the line costs one short grant and one poll.
        takeover_delay: Duration::from_secs(2),
        durability: Durability::Memory,
        max_key_bytes: MAX_KEY_BYTES,
    }
}

fn renewal(command: &mut Cmd, claim: &Claim) {
    on(command, Name(&claim.key)).arg(layout::Value(claim)).arg(ttl_ms(claim));
}

fn ttl_ms(claim: &Claim) -> u64 {
    millis(claim.ttl)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn as_array(answer: &Value) -> Result<&[Value]> {
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
