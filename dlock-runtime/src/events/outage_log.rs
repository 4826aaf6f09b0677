//! The log of a store that fails: a line when it begins, one every 30 s while it lasts, and one at the end.
//!
//! During an outage hundreds of calls and renewals fail each second, and all say the same. A line for each of them would
//! hide the rest of the log. All failures of one store are one outage. It ends at the first answer that comes a while
//! after the last failure. An answer alone does not end it: if one of several servers is down, failures and answers
//! alternate.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;
use dlock_store::line;

use crate::events::lines::short;
use crate::site::StoreLabel;

/// An outage ends at the first answer that comes this long after its last failure.
const QUIET_TIME: Duration = Duration::from_secs(5);

/// The time between two lines about one outage.
const LINE_INTERVAL: Duration = Duration::from_secs(30);

const NO_LONGER: &str = "the store no longer fails";

/// A failure that comes this long after the last one begins another outage, if the store has answered meanwhile.
const OUTAGE_MEMORY: Duration = Duration::from_secs(120);

/// The stores of a registry that fail, by their names.
#[derive(Default)]
pub(crate) struct OutageLog {
    /// Whether there is an outage. While all stores answer, an answer costs one load.
    has_outages: AtomicBool,
    /// Whether the registry is shut down.
    has_ended: AtomicBool,
    outages: Mutex<HashMap<Arc<str>, Outage>>,
}

/// The request that has failed.
#[derive(Clone, Copy)]
pub(crate) enum Failed {
    Call,
    Renewal,
    Release,
}

/// The error of the request.
pub(crate) struct Why<'a> {
    pub(crate) reason: &'a Arc<str>,
    pub(crate) code: &'a Option<Arc<str>>,
}

/// A time in which a store fails.
struct Outage {
    store: StoreLabel,
    since: BootInstant,
    last: BootInstant,
    /// The first answer after the last failure.
    answered: Option<BootInstant>,
    /// The time of the last line about this outage.
    told: BootInstant,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    calls: u64,
    renewals: u64,
    releases: u64,
    lost: u64,
}

impl Counts {
    fn add(&mut self, failed: Failed) {
        match failed {
            Failed::Call => self.calls += 1,
            Failed::Renewal => self.renewals += 1,
            Failed::Release => self.releases += 1,
        }
    }
}

impl OutageLog {
    /// Notes a failed request.
    pub(crate) fn note_failure(&self, store: &StoreLabel, failed: Failed, why: Why<'_>, now: BootInstant) {
        if self.has_ended.load(Ordering::Relaxed) {
            return;
        }
        let (store, reason, code) = (store.clone(), why.reason.clone(), why.code.clone());
        let mut outages = self.outages();
        self.has_outages.store(true, Ordering::Relaxed);
        let lasts = |outage: &&mut Outage| outage.answered.is_none() || now.since(outage.last) < OUTAGE_MEMORY;
        if let Some(outage) = outages.get_mut(&store.name).filter(lasts) {
            (outage.last, outage.answered) = (now, None);
            outage.counts.add(failed);
            if now.since(outage.told) < LINE_INTERVAL {
                return;
            }
            outage.told = now;
            let (counts, lasted) = (outage.counts, now.since(outage.since));
            drop(outages);
            line(move || {
                let (backend, host) = (&*store.name, store.host.as_deref());
                tracing::warn!(
                    target: "dlock", backend, host, reason = &*reason, code = code.as_deref(), lasted = %short(lasted),
                    failed_calls = counts.calls, failed_renewals = counts.renewals, failed_releases = counts.releases,
                    lost_holds = counts.lost, "the store still fails"
                );
            });
            return;
        }
        let counts = Counts::default();
        let mut outage = Outage { store: store.clone(), since: now, last: now, answered: None, told: now, counts };
        outage.counts.add(failed);
        let before = outages.insert(store.name.clone(), outage);
        drop(outages);
        if let Some(before) = before {
            before.tell_end(NO_LONGER);
        }
        line(move || {
            let (backend, host) = (&*store.name, store.host.as_deref());
            tracing::warn!(
                target: "dlock", backend, host, reason = &*reason, code = code.as_deref(),
                "the store fails; further failures are counted, and logged one by one at the level debug"
            );
        });
    }

    /// Notes a lost hold.
    pub(crate) fn note_loss(&self, backend: &str) {
        if self.has_outages.load(Ordering::Relaxed)
            && let Some(outage) = self.outages().get_mut(backend)
        {
            outage.counts.lost += 1;
        }
    }

    /// Whether the store fails now.
    pub(crate) fn is_failing(&self, backend: &str) -> bool {
        self.has_outages.load(Ordering::Relaxed) && self.outages().contains_key(backend)
    }

    /// Notes an answer of the store.
    pub(crate) fn note_answer(&self, backend: &str, now: impl FnOnce() -> BootInstant) {
        if !self.has_outages.load(Ordering::Relaxed) {
            return;
        }
        let now = now();
        let mut outages = self.outages();
        let is_over = outages.get_mut(backend).is_some_and(|outage| {
            outage.answered.get_or_insert(now);
            now.since(outage.last) >= QUIET_TIME
        });
        let ended = if is_over { outages.remove(backend) } else { None };
        self.has_outages.store(!outages.is_empty(), Ordering::Relaxed);
        drop(outages);
        if let Some(ended) = ended {
            ended.tell_end(NO_LONGER);
        }
    }

    /// Tells of each outage that lasts at the shutdown of the registry. Later failures are no outages.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        let outages = std::mem::take(&mut *self.outages());
        outages.values().for_each(|outage| outage.tell_end("the registry is shut down while the store fails"));
    }

    fn outages(&self) -> MutexGuard<'_, HashMap<Arc<str>, Outage>> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outage {
    fn tell_end(&self, text: &'static str) {
        let lasted = self.answered.unwrap_or(self.last).since(self.since);
        let (counts, store) = (self.counts, self.store.clone());
        line(move || {
            let (backend, host) = (&*store.name, store.host.as_deref());
            tracing::warn!(
                target: "dlock", backend, host, lasted = %short(lasted), failed_calls = counts.calls,
                failed_renewals = counts.renewals, failed_releases = counts.releases, lost_holds = counts.lost,
                "{text}"
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;
    use dlock_store::Clock;

    /// The lines that are logged.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            struct Line(String);
            impl Visit for Line {
                fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                    self.0 += &format!("{}={value:?} ", field.name());
                }
            }
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn store(name: &str) -> StoreLabel {
        StoreLabel { name: name.into(), kind: "redis", host: Some("cache:6379".into()) }
    }

    fn why(reason: &Arc<str>) -> Why<'_> {
        Why { reason, code: &None }
    }

    fn told(lines: &Lines) -> Vec<String> {
        lines.0.lock().unwrap().split_off(0)
    }

    #[test]
    fn an_outage_of_thirty_seconds_is_three_lines() {
        let (log, clock, lines) = (OutageLog::default(), Clock::manual(), Lines::default());
        let (refused, silent): (Arc<str>, Arc<str>) = ("refused".into(), "silent".into());
        tracing::subscriber::with_default(lines.clone(), || {
            for call in 0..9300 {
                log.note_failure(
                    &store("one"),
                    Failed::Call,
                    why(if call < 9000 { &refused } else { &silent }),
                    clock.now(),
                );
                // Another server of the same store lives.
                log.note_answer("one", || clock.now());
                clock.advance(SECOND / 300);
            }
            (0..7).for_each(|_| log.note_failure(&store("one"), Failed::Renewal, why(&silent), clock.now()));
            log.note_failure(&store("one"), Failed::Release, why(&silent), clock.now());
            let first = told(&lines);
            assert!(first.len() == 2 && first[0].contains("refused") && first[0].contains("\"one\""), "{first:?}");
            assert!(first[1].contains("silent") && first[1].contains("lasted=30."), "{first:?}");
            clock.advance(QUIET_TIME);
            log.note_answer("one", || clock.now());
            let last = told(&lines);
            assert!(
                last.len() == 1
                    && last[0].contains("failed_calls=9300 failed_renewals=7 failed_releases=1 lost_holds=0"),
                "{last:?}"
            );
            log.note_answer("one", || clock.now());
            assert!(told(&lines).is_empty());
        });
    }

    #[test]
    fn each_store_has_its_own_outage() {
        let (log, clock, lines) = (OutageLog::default(), Clock::manual(), Lines::default());
        tracing::subscriber::with_default(lines.clone(), || {
            let reason = "refused".into();
            log.note_failure(&store("one"), Failed::Renewal, why(&reason), clock.now());
            log.note_failure(&store("two"), Failed::Renewal, why(&reason), clock.now());
            assert_eq!(told(&lines).len(), 2);
            clock.advance(QUIET_TIME);
            log.note_answer("two", || clock.now());
            assert_eq!((log.is_failing("one"), log.is_failing("two"), told(&lines).len()), (true, false, 1));
            // Renewals of a long lease are far apart.
            clock.advance(10 * SECOND);
            log.note_failure(&store("one"), Failed::Renewal, why(&reason), clock.now());
            assert!(told(&lines).is_empty());
            // The store's holds are gone, so there is no request and no answer: nobody knows that it has come back.
            clock.advance(OUTAGE_MEMORY);
            log.note_failure(&store("one"), Failed::Renewal, why(&reason), clock.now());
            let still = told(&lines);
            assert!(still.len() == 1 && still[0].contains("failed_renewals=3"), "{still:?}");
            // One answer, and then nobody asks for long.
            log.note_answer("one", || clock.now());
            clock.advance(OUTAGE_MEMORY);
            log.note_failure(&store("one"), Failed::Renewal, why(&reason), clock.now());
            let lines = told(&lines);
            assert!(lines.len() == 2 && lines[0].contains("failed_renewals=3"), "{lines:?}");
        });
    }

    #[test]
    fn a_shutdown_tells_what_has_failed() {
        let (log, clock, lines) = (OutageLog::default(), Clock::manual(), Lines::default());
        tracing::subscriber::with_default(lines.clone(), || {
            let reason = "refused".into();
            for name in ["silent", "back"] {
                log.note_failure(&store(name), Failed::Call, why(&reason), clock.now());
            }
            log.note_answer("back", || clock.now());
            told(&lines);
            log.end();
            let last = told(&lines);
            let is_told =
                |line: &String| line.contains("is shut down while the store fails") && line.contains("failed_calls=1");
            assert!(last.len() == 2 && last.iter().all(is_told), "{last:?}");
            log.note_failure(&store("silent"), Failed::Release, why(&reason), clock.now());
            log.end();
            assert!(told(&lines).is_empty());
        });
    }

    #[test]
    fn the_end_of_an_outage_counts_the_lost_holds() {
        let (log, clock, lines) = (OutageLog::default(), Clock::manual(), Lines::default());
        tracing::subscriber::with_default(lines.clone(), || {
            log.note_loss("one");
            log.note_failure(&store("one"), Failed::Renewal, why(&"refused".into()), clock.now());
            (0..10).for_each(|_| log.note_loss("one"));
            log.note_loss("two");
            clock.advance(QUIET_TIME);
            log.note_answer("one", || clock.now());
            assert!(told(&lines).pop().unwrap().contains("lost_holds=10"));
        });
    }
}
