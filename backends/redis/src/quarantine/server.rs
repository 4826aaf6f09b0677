//! The quarantine of a server that may have lost locks: in a restart without its file, or in a failover to a replica that
//! lagged. A lock that looks free there may still be held, so the server grants nothing until every earlier lock has ended.
//!
//! Each new connection reads the server's `run_id`, which a restart changes: a restart and a failover break all
//! connections. A promotion changes the server's `master_replid`. It breaks no connection, so each connection reads that
//! again and again (`connections/look_ahead`). Locks that the server still has are renewed and released as usual. For a
//! cluster see `shards`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ::redis::Value;
use dlock_contract::{BootInstant, Result};

use crate::quarantine::announced::Announced;
use crate::quarantine::history::{History, Life, ServerDescription, may_evict};
use crate::quarantine::rules::{Rules, in_quarantine};
use crate::quarantine::shards::Shards;
use crate::quarantine::suspicion::Suspicion;
use crate::reply::fault;
use crate::reply::fault::evicts;
use crate::url::settings::Settings;

const MAY_HAVE_LOST: &str = "Redis has restarted or failed over, and may have forgotten locks: it grants no new lock for this time, and holds go on";

/// The quarantine of one server, or of the servers of one cluster.
pub(crate) struct Quarantine {
    pub(crate) rules: Rules,
    /// The last failover and the last restart that may have lost locks, in nanoseconds of our clock; 0 if there was none.
    /// Neither is cleared: a later request may have a longer ttl, and then the quarantine lasts longer.
    failed_over: AtomicU64,
    restarted: AtomicU64,
    /// When a connection ended last, as far as that was noticed, in nanoseconds of our clock.
    ended: AtomicU64,
    known: Mutex<Option<Life>>,
    /// Whether the server may evict locks. After a failover the new primary may be set up in another way.
    evicts: AtomicBool,
    /// The servers of a cluster.
    pub(crate) shards: Shards,
    /// The server, as the log names it.
    place: String,
    announced: Announced,
}

impl Quarantine {
    pub(crate) fn new(settings: &Settings, place: String) -> Self {
        Self {
            rules: Rules::new(settings),
            failed_over: AtomicU64::new(0),
            restarted: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            known: Mutex::default(),
            evicts: AtomicBool::new(false),
            shards: Shards::default(),
            place,
            announced: Announced::default(),
        }
    }

    /// Notes that a connection has ended.
    pub(crate) fn ended(&self, now: BootInstant) {
        self.ended.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// Notes which server a new connection has led to.
    pub(crate) fn met(&self, seen: ServerDescription, now: BootInstant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let suspicion = self.suspicion_of(known.as_ref(), &seen, now);
        self.evicts.store(self.rules.refuses(&seen, self.evicts()), Ordering::Relaxed);
        let first = known.replace(Life { run_id: seen.run_id, history: seen.history.name, met: now }).is_none();
        drop(known);
        self.suspect(suspicion);
        self.tell(suspicion, now, first);
    }

    /// Notes what the server says of its history, over a connection that has stayed open.
    pub(crate) fn heard(&self, history: History, now: BootInstant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(life) = known.as_mut() else { return };
        let promoted = history.was_begun_since(life);
        life.history = history.name;
        drop(known);
        if promoted {
            let suspicion = self.rules.after_failover(now);
            self.suspect(suspicion);
            self.tell(suspicion, now, false);
        }
    }

    fn tell(&self, suspicion: Suspicion, now: BootInstant, first: bool) {
        let Some(until) = self.rules.until(suspicion).filter(|until| *until > now) else { return };
        let text =
            if first { "Redis has started a moment ago; it grants no lock yet (restart_guard)" } else { MAY_HAVE_LOST };
        self.announced.begins(&self.place, until.since(now), text);
    }

    /// Whether the server may evict locks, by its last answer.
    pub(crate) fn evicts(&self) -> bool {
        self.evicts.load(Ordering::Relaxed)
    }

    /// Notes the server's eviction policy: the answers to the last two of [`QUESTIONS`](crate::quarantine::history::QUESTIONS).
    ///
    /// # Errors
    /// If the answer does not say. The last known policy stays.
    pub(crate) fn heard_policy(&self, answers: &[Value]) -> Result<()> {
        let [memory, config] = answers else { return Err(fault::unexpected(&Value::Nil)) };
        let evicts = may_evict(memory, config).ok_or_else(|| fault::unexpected(config))?;
        self.evicts.store(evicts && !self.rules.eviction_allowed, Ordering::Relaxed);
        Ok(())
    }

    /// Notes that another server has taken the place of the one that granted.
    pub(crate) fn replaced(&self, now: BootInstant) {
        let suspicion = self.rules.after_failover(now);
        self.suspect(suspicion);
        self.tell(suspicion, now, false);
    }

    fn suspect(&self, suspicion: Suspicion) {
        for (place, since) in [(&self.failed_over, suspicion.failover), (&self.restarted, suspicion.restart)] {
            if let Some(since) = since {
                place.fetch_max(since.as_nanos().max(1), Ordering::Relaxed);
            }
        }
    }

    /// Compares the server with the one that this process knew before, and says since when locks may be lost.
    fn suspicion_of(&self, before: Option<&Life>, seen: &ServerDescription, now: BootInstant) -> Suspicion {
        let ended = BootInstant::from_nanos(self.ended.load(Ordering::Relaxed));
        // The new server already ran while the old one granted, and nobody knows when the old one granted last. Or it is the
        // same server, and its end was noticed after its restart.
        let is_other_server =
            before.is_some_and(|life| life.run_id != seen.run_id && now.before(seen.uptime) < life.met.max(ended));
        let failover = if is_other_server { self.rules.after_failover(now) } else { Suspicion::default() };
        failover.or(self.rules.suspicion_of_same(before, seen, now))
    }

    /// Checks that the server may grant now.
    ///
    /// # Errors
    /// During a quarantine, and on a server that may evict locks.
    pub(crate) fn check(&self, now: impl FnOnce() -> BootInstant) -> Result<()> {
        if self.evicts() {
            // An operator may correct the policy, and the next attempt asks for it.
            return Err(evicts().with_retryable(true));
        }
        let since = |place: &AtomicU64| match place.load(Ordering::Relaxed) {
            0 => None,
            since => Some(BootInstant::from_nanos(since)),
        };
        let suspicion = Suspicion { failover: since(&self.failed_over), restart: since(&self.restarted) };
        let Some(until) = self.rules.until(suspicion) else { return Ok(()) };
        let left = until.since(now());
        if left.is_zero() {
            self.announced
                .announce_end(&self.place, "Redis grants locks again: those that it may have lost have ended");
            return Ok(());
        }
        // A longer ttl makes the guard longer, also one that was over.
        self.announced.begins(&self.place, left, MAY_HAVE_LOST);
        Err(in_quarantine(left))
    }
}

#[cfg(test)]
mod tests;
