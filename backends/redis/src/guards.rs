//! What a server may have forgotten: after a restart without its file, or after a failover to a replica that lagged, a lock
//! that looks free may be somebody's. No grants then, until every lock of before has ended.
//!
//! A restart is seen by the server's `run_id`, which is looked at on every new connection: a restart and a failover break
//! all of them. A promotion is seen by its `master_replid`, also of a server that we knew and that was a replica meanwhile;
//! it breaks no connection, so that is looked at again and again (`connection/looks`).
//! Holds that the server still knows are renewed and released as ever. Of a cluster see `shards`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::redis::Value;
use dlock_contract::{BootInstant, Error, Result};

use super::check::{evicts, field, settings, text, uptime};
use super::fault;
use super::settings::{Guard, Settings};
use super::shards::Shards;
use super::suspicion::Suspicion;

/// The guards of one store.
pub(super) struct Guards {
    restart: Guard,
    failover: Guard,
    /// The longest ttl that this process has asked for, in ms.
    longest: AtomicU64,
    /// Since when nothing may be granted for the length of each guard, in nanoseconds of our clock; 0 if nothing was
    /// forgotten. Never cleared: a later request may ask for a longer ttl, and so for a longer guard.
    failed_over: AtomicU64,
    restarted: AtomicU64,
    /// When a connection ended last, as far as that was noticed, in nanoseconds of our clock.
    ended: AtomicU64,
    known: Mutex<Option<Life>>,
    eviction_allowed: bool,
    /// The server may evict locks: it was the wrong one to fail over to.
    evicts: AtomicBool,
    /// The servers of a cluster.
    pub(super) shards: Shards,
}

/// One run of one server.
pub(super) struct Life {
    pub(super) run_id: String,
    /// [`History::name`] then.
    pub(super) history: String,
    /// When it was connected to last.
    pub(super) met: BootInstant,
}

/// What the first answers on a connection say about the server.
pub(super) struct Seen {
    pub(super) run_id: String,
    pub(super) uptime: Duration,
    /// Is everything on disk that was acknowledged?
    pub(super) durable: bool,
    pub(super) history: History,
    /// May it forget locks when its memory is full? Nothing where the user may not ask for that.
    pub(super) evicts: Option<bool>,
}

/// A server's answer about the history of its data.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Its name (`master_replid`): another one since each promotion.
    pub(super) name: String,
    /// Does it go on another one (`master_replid2`)? So it does after a promotion, and after a restart of a primary from
    /// its snapshot; not where a first replica came, or the last one went long ago.
    pub(super) is_heir: bool,
    /// Is the server no replica?
    pub(super) is_primary: bool,
}

/// The question that [`History`] is read from.
pub(super) const REPLICATION: &[&str] = &["INFO", "replication"];

/// The questions to a server on a new connection.
pub(super) const QUESTIONS: [&[&str]; 4] =
    [&["INFO", "server"], &["INFO", "persistence"], REPLICATION, &["CONFIG", "GET", "appendfsync", "maxmemory-policy"]];

impl Seen {
    /// Reads the answers to [`QUESTIONS`]; nothing where the user may not ask for the first.
    pub(super) fn read(answers: &[Value]) -> Option<Self> {
        let [server, persistence, replication, config] = answers else { return None };
        let server = text(server)?;
        let appends = text(persistence).and_then(|info| field(info, "aof_enabled")) == Some("1");
        let settings = settings(config).unwrap_or_default();
        let always = settings.contains(&("appendfsync", "always"));
        Some(Self {
            run_id: field(server, "run_id")?.to_owned(),
            uptime: uptime(server)?,
            durable: appends && always,
            history: History::read(replication).unwrap_or_default(),
            evicts: may_evict(config),
        })
    }

    /// When it started, at the latest: it counts whole seconds of its clock, so the first may have been a short one.
    fn started(&self, now: BootInstant) -> BootInstant {
        now.before(self.uptime.saturating_sub(Duration::from_secs(1)))
    }
}

impl History {
    /// Reads the answer to [`REPLICATION`].
    pub(super) fn read(answer: &Value) -> Option<Self> {
        let info = text(answer)?;
        Some(Self {
            name: field(info, "master_replid")?.to_owned(),
            is_heir: field(info, "master_replid2").is_some_and(|name| name.contains(|digit| digit != '0')),
            is_primary: field(info, "role") == Some("master"),
        })
    }

    fn was_begun_since(&self, life: &Life) -> bool {
        self.is_heir && self.name != life.history
    }
}

impl Guards {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            restart: settings.restart_guard,
            failover: settings.failover_guard,
            longest: AtomicU64::new(0),
            failed_over: AtomicU64::new(0),
            restarted: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            known: Mutex::default(),
            eviction_allowed: settings.eviction_allowed,
            evicts: AtomicBool::new(false),
            shards: Shards::default(),
        }
    }

    /// Notes that a lock of this ttl is asked for.
    pub(super) fn asks_for(&self, ttl: Duration) {
        let ttl = super::units::millis(ttl);
        if ttl > self.longest.load(Ordering::Relaxed) {
            self.longest.fetch_max(ttl, Ordering::Relaxed);
        }
    }

    /// Notes that a connection has ended.
    pub(super) fn ended(&self, now: BootInstant) {
        self.ended.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// Notes which server a new connection has led to.
    pub(super) fn met(&self, seen: Seen, now: BootInstant, place: &impl std::fmt::Debug) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let suspicion = self.judged(known.as_ref(), &seen, now);
        self.evicts.store(self.refuses(&seen, self.evicts()), Ordering::Relaxed);
        let first = known.replace(Life { run_id: seen.run_id, history: seen.history.name, met: now }).is_none();
        drop(known);
        self.suspect(suspicion);
        self.tell(suspicion, now, first, place);
    }

    /// Can a promotion of the server keep grants back?
    pub(super) fn follow_history(&self) -> bool {
        self.failover != Guard::Off
    }

    /// Notes what the server says of its history, over a connection that has stayed open.
    pub(super) fn heard(&self, history: History, now: BootInstant, place: &impl std::fmt::Debug) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(life) = known.as_mut() else { return };
        let promoted = history.was_begun_since(life);
        life.history = history.name;
        drop(known);
        if promoted {
            let suspicion = self.after_failover(now);
            self.suspect(suspicion);
            self.tell(suspicion, now, false, place);
        }
    }

    fn tell(&self, suspicion: Suspicion, now: BootInstant, first: bool, place: &impl std::fmt::Debug) {
        let Some(until) = self.until(suspicion).filter(|until| *until > now) else { return };
        let wait = until.since(now);
        if first {
            tracing::warn!(?place, ?wait, "Redis has started a moment ago; nothing is granted yet (restart_guard)");
        } else {
            tracing::warn!(?place, ?wait, "Redis may have forgotten locks; nothing is granted meanwhile");
        }
    }

    /// Is the server the wrong one, as far as it was asked?
    pub(super) fn evicts(&self) -> bool {
        self.evicts.load(Ordering::Relaxed)
    }

    /// Notes what it says to that now: the answer to the last of [`QUESTIONS`].
    ///
    /// # Errors
    /// If the answer does not say: then it is the wrong one as before.
    pub(super) fn heard_policy(&self, config: &Value) -> Result<()> {
        let evicts = may_evict(config).ok_or_else(|| fault::unexpected(config))?;
        self.evicts.store(evicts && !self.eviction_allowed, Ordering::Relaxed);
        Ok(())
    }

    /// May the server grant nothing as long as it is set up so? Where it does not say how it is, it is as `before`.
    pub(super) fn refuses(&self, seen: &Seen, before: bool) -> bool {
        seen.evicts.map_or(before, |evicts| evicts && !self.eviction_allowed)
    }

    /// Notes that another server has taken the place of the one that granted.
    pub(super) fn replaced(&self, now: BootInstant) {
        self.suspect(self.after_failover(now));
    }

    fn suspect(&self, suspicion: Suspicion) {
        for (place, since) in [(&self.failed_over, suspicion.failover), (&self.restarted, suspicion.restart)] {
            if let Some(since) = since {
                place.fetch_max(since.as_nanos().max(1), Ordering::Relaxed);
            }
        }
    }

    /// The locks that the server may have forgotten, if this process has known `before` in its place.
    fn judged(&self, before: Option<&Life>, seen: &Seen, now: BootInstant) -> Suspicion {
        let ended = BootInstant::from_nanos(self.ended.load(Ordering::Relaxed));
        // It ran already while the other one served us: nobody knows when that one gave its last lock. Or it is the same one,
        // whose end was noticed after it had started anew.
        let other =
            before.is_some_and(|life| life.run_id != seen.run_id && now.before(seen.uptime) < life.met.max(ended));
        let failover = if other { self.after_failover(now) } else { Suspicion::default() };
        failover.or(self.judged_alone(before, seen, now))
    }

    /// The same, if it can only be the same one again. A restart as a replica and a promotion may both lie between.
    pub(super) fn judged_alone(&self, before: Option<&Life>, seen: &Seen, now: BootInstant) -> Suspicion {
        let promoted = before.is_some_and(|life| seen.history.was_begun_since(life));
        let failover = if promoted { self.after_failover(now) } else { Suspicion::default() };
        failover.or(self.after_restart(before, seen, now))
    }

    /// Slots have just come from a server that this process knows to one that it does not know. The new server may have
    /// forgotten locks of these slots: by a restart while they came, which its age tells, or by a promotion, which
    /// nothing dates.
    pub(super) fn after_arrival(&self, seen: &Seen, now: BootInstant) -> Suspicion {
        let failover = if seen.history.is_heir { self.after_failover(now) } else { Suspicion::default() };
        failover.or(self.restarted(seen, now))
    }

    fn after_restart(&self, before: Option<&Life>, seen: &Seen, now: BootInstant) -> Suspicion {
        match before {
            Some(life) if life.run_id == seen.run_id => Suspicion::default(),
            // This process has not met the server before. Being young is no reason for suspicion, so only a guard that
            // the URL names counts.
            None if !matches!(self.restart, Guard::For(_)) => Suspicion::default(),
            _ => self.restarted(seen, now),
        }
    }

    fn restarted(&self, seen: &Seen, now: BootInstant) -> Suspicion {
        let is_suspect = !seen.durable && self.restart != Guard::Off;
        Suspicion { restart: is_suspect.then(|| seen.started(now)), ..Suspicion::default() }
    }

    /// For a server that has taken another one's place just now.
    pub(super) fn after_failover(&self, now: BootInstant) -> Suspicion {
        Suspicion { failover: (self.failover != Guard::Off).then_some(now), ..Suspicion::default() }
    }

    /// Until when nothing may be granted there, by the longest ttl that was asked for so far.
    pub(super) fn until(&self, suspicion: Suspicion) -> Option<BootInstant> {
        let end = |since: Option<BootInstant>, guard| Some(since?.after(self.length(guard)?));
        end(suspicion.failover, self.failover).max(end(suspicion.restart, self.restart))
    }

    fn length(&self, guard: Guard) -> Option<Duration> {
        match guard {
            Guard::Off => None,
            Guard::For(length) => Some(length),
            Guard::Auto => Some(Duration::from_millis(self.longest.load(Ordering::Relaxed))),
        }
    }

    /// Is nobody to be kept waiting in any case?
    pub(super) fn are_off(&self) -> bool {
        (self.restart, self.failover) == (Guard::Off, Guard::Off)
    }

    /// # Errors
    /// While a lock that looks free may be somebody's; on a server that may evict locks.
    pub(super) fn check(&self, now: impl FnOnce() -> BootInstant) -> Result<()> {
        if self.evicts() {
            return Err(evicts());
        }
        let since = |place: &AtomicU64| match place.load(Ordering::Relaxed) {
            0 => None,
            since => Some(BootInstant::from_nanos(since)),
        };
        let suspicion = Suspicion { failover: since(&self.failed_over), restart: since(&self.restarted) };
        let Some(until) = self.until(suspicion) else { return Ok(()) };
        let left = until.since(now());
        if left.is_zero() {
            return Ok(());
        }
        Err(forgetful(left))
    }
}

fn may_evict(config: &Value) -> Option<bool> {
    let (_, policy) = settings(config)?.into_iter().find(|(name, _)| *name == "maxmemory-policy")?;
    Some(policy != "noeviction")
}

pub(super) fn forgetful(left: Duration) -> Error {
    let text = format!(
        "Redis was restarted or replaced and may have forgotten locks: none is granted for another {left:.1?} \
         (restart_guard, failover_guard)"
    );
    Error::outage(text).with_retry_after(Some(left))
}

#[cfg(test)]
mod tests;
