//! When a server is quarantined, and for how long: the URL's `restart_guard` and `failover_guard`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dlock_contract::{BootInstant, Error};

use crate::layout::units::millis;
use crate::quarantine::history::{Life, ServerDescription};
use crate::quarantine::suspicion::Suspicion;
use crate::url::settings::{GuardTime, Settings};

/// The rules of one store, from its URL.
pub(crate) struct Rules {
    restart: GuardTime,
    failover: GuardTime,
    /// The longest ttl that this process has asked for, in milliseconds.
    longest: AtomicU64,
    pub(crate) eviction_allowed: bool,
}

impl Rules {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            restart: settings.restart_guard,
            failover: settings.failover_guard,
            longest: AtomicU64::new(0),
            eviction_allowed: settings.eviction_allowed,
        }
    }

    /// Notes that a lock of this ttl is asked for.
    pub(crate) fn asks_for(&self, ttl: Duration) {
        let ttl = millis(ttl);
        if ttl > self.longest.load(Ordering::Relaxed) {
            self.longest.fetch_max(ttl, Ordering::Relaxed);
        }
    }

    /// Whether a failover leads to a quarantine.
    pub(crate) fn follow_history(&self) -> bool {
        self.failover != GuardTime::Off
    }

    /// Whether the server may not grant because it may evict locks. If it does not report its policy, the answer is
    /// `before`.
    pub(crate) fn refuses(&self, seen: &ServerDescription, before: bool) -> bool {
        seen.evicts.map_or(before, |evicts| evicts && !self.eviction_allowed)
    }

    /// Compares two looks at the same server. A restart as a replica and a promotion may both lie between them.
    pub(crate) fn suspicion_of_same(
        &self,
        before: Option<&Life>,
        seen: &ServerDescription,
        now: BootInstant,
    ) -> Suspicion {
        let promoted = before.is_some_and(|life| seen.history.was_begun_since(life));
        let failover = if promoted { self.after_failover(now) } else { Suspicion::default() };
        failover.or(self.after_restart(before, seen, now))
    }

    /// Slots have just come from a server that this process knows to one that it does not know. The new server may have
    /// forgotten locks of these slots: by a restart while they came, which its age shows, or by a promotion, which has
    /// no date.
    pub(crate) fn after_arrival(&self, seen: &ServerDescription, now: BootInstant) -> Suspicion {
        let failover = if seen.history.is_heir { self.after_failover(now) } else { Suspicion::default() };
        failover.or(self.restarted(seen, now))
    }

    fn after_restart(&self, before: Option<&Life>, seen: &ServerDescription, now: BootInstant) -> Suspicion {
        match before {
            Some(life) if life.run_id == seen.run_id => Suspicion::default(),
            // This process sees the server for the first time. A young server alone is no reason for suspicion, so only a
            // time that the URL names counts.
            None if !matches!(self.restart, GuardTime::For(_)) => Suspicion::default(),
            _ => self.restarted(seen, now),
        }
    }

    fn restarted(&self, seen: &ServerDescription, now: BootInstant) -> Suspicion {
        let is_suspect = !seen.durable && self.restart != GuardTime::Off;
        Suspicion { restart: is_suspect.then(|| seen.started(now)), ..Suspicion::default() }
    }

    /// The suspicion against a server that has just replaced another one.
    pub(crate) fn after_failover(&self, now: BootInstant) -> Suspicion {
        Suspicion { failover: (self.failover != GuardTime::Off).then_some(now), ..Suspicion::default() }
    }

    /// The end of the quarantine, by the longest ttl of this process so far.
    pub(crate) fn until(&self, suspicion: Suspicion) -> Option<BootInstant> {
        let end = |since: Option<BootInstant>, guard| Some(since?.after(self.length(guard)?));
        end(suspicion.failover, self.failover).max(end(suspicion.restart, self.restart))
    }

    fn length(&self, guard: GuardTime) -> Option<Duration> {
        match guard {
            GuardTime::Off => None,
            GuardTime::For(length) => Some(length),
            GuardTime::Auto => Some(Duration::from_millis(self.longest.load(Ordering::Relaxed))),
        }
    }

    /// Whether there is never a quarantine.
    pub(crate) fn are_off(&self) -> bool {
        (self.restart, self.failover) == (GuardTime::Off, GuardTime::Off)
    }
}

/// The error of a request during a quarantine, with the time that is left.
pub(crate) fn in_quarantine(left: Duration) -> Error {
    let text = format!(
        "Redis was restarted or replaced and may have lost locks: it grants none for another {left:.1?} \
         (restart_guard, failover_guard)"
    );
    Error::outage(text).with_retry_after(Some(left))
}
