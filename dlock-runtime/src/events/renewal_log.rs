//! The log lines about renewals that fail: one for each store and state, not for each hold and attempt.
//!
//! Hundreds of holds on a store that refuses them fail some twenty times each before they are lost. The failures of one
//! store are one episode. It ends when a renewal is confirmed and none has failed for a while. A confirmation alone
//! does not end it: if one of several servers is down, failures and confirmations alternate.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;
use dlock_contract::engine::line;

/// An episode ends at the first confirmation that comes this long after its last failure.
const QUIET: Duration = Duration::from_secs(5);

/// The most reasons of one episode that are logged. There are few, but a reason may contain a number.
const MOST_REASONS: usize = 8;

/// The episodes of a registry's stores, by their names.
#[derive(Default)]
pub(crate) struct RenewalLog {
    /// Whether there is an episode.
    has_episodes: AtomicBool,
    episodes: Mutex<HashMap<Arc<str>, Episode>>,
}

/// A time in which renewals of one store fail.
struct Episode {
    since: BootInstant,
    last: BootInstant,
    failures: u64,
    reasons: Vec<Arc<str>>,
}

impl RenewalLog {
    /// A renewal has failed.
    pub(crate) fn failed(&self, backend: &str, reason: &Arc<str>, remaining: Duration, now: BootInstant) {
        let mut episodes = self.episodes();
        self.has_episodes.store(true, Ordering::Relaxed);
        if let Some(before) = episodes.get_mut(backend).filter(|before| now.since(before.last) < QUIET) {
            (before.last, before.failures) = (now, before.failures + 1);
            if before.reasons.len() == MOST_REASONS || before.reasons.contains(reason) {
                return;
            }
            before.reasons.push(reason.clone());
            let (failures, backend, reason) = (before.failures, backend.to_owned(), reason.clone());
            drop(episodes);
            line(move || {
                tracing::warn!(target: "dlock", backend, %reason, failures, "renewals now also fail for another reason");
            });
            return;
        }
        let episode = Episode { since: now, last: now, failures: 1, reasons: vec![reason.clone()] };
        let before = episodes.insert(backend.into(), episode);
        drop(episodes);
        if let Some(before) = before {
            before.tell_end(backend);
        }
        let (backend, reason) = (backend.to_owned(), reason.clone());
        line(move || {
            tracing::warn!(
                target: "dlock", backend, %reason, ?remaining,
                "a renewal failed; further failures on this store are counted, and logged one by one at the level debug"
            );
        });
    }

    /// A renewal was confirmed.
    pub(crate) fn confirmed(&self, backend: &str, now: impl FnOnce() -> BootInstant) {
        if !self.has_episodes.load(Ordering::Relaxed) {
            return;
        }
        let now = now();
        let mut episodes = self.episodes();
        let is_over = episodes.get(backend).is_some_and(|episode| now.since(episode.last) >= QUIET);
        let ended = if is_over { episodes.remove(backend) } else { None };
        self.has_episodes.store(!episodes.is_empty(), Ordering::Relaxed);
        drop(episodes);
        if let Some(ended) = ended {
            ended.tell_end(backend);
        }
    }

    fn episodes(&self) -> MutexGuard<'_, HashMap<Arc<str>, Episode>> {
        self.episodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Episode {
    fn tell_end(&self, backend: &str) {
        let (failures, lasted, backend) = (self.failures, self.last.since(self.since), backend.to_owned());
        line(move || tracing::warn!(target: "dlock", backend, failures, ?lasted, "renewals no longer fail"));
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;
    use dlock_contract::Clock;

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

    #[test]
    fn a_store_that_fails_hundreds_of_holds_is_logged_once_for_each_state() {
        let (log, clock, lines) = (RenewalLog::default(), Clock::manual(), Lines::default());
        let reason: Arc<str> = "refused".into();
        let failed = |backend, reason: &Arc<str>| log.failed(backend, reason, Duration::from_secs(1), clock.now());
        let confirmed = |backend| log.confirmed(backend, || clock.now());
        let told = || lines.0.lock().unwrap().split_off(0);
        tracing::subscriber::with_default(lines.clone(), || {
            for _ in 0..20 {
                (0..200).for_each(|_| failed("one", &reason));
                // Another server of the same store lives.
                confirmed("one");
                clock.advance(Duration::from_millis(50));
            }
            let lines = told();
            assert!(lines.len() == 1 && lines[0].contains("refused") && lines[0].contains("\"one\""), "{lines:?}");
            // Another store, and another reason.
            failed("two", &reason);
            (0..200).for_each(|_| failed("one", &"silent".into()));
            let lines = told();
            assert!(lines.len() == 2 && lines[1].contains("silent") && lines[1].contains("failures=4001"), "{lines:?}");
            confirmed("one");
            assert!(told().is_empty());
            clock.advance(QUIET);
            confirmed("one");
            let lines = told();
            assert!(lines.len() == 1 && lines[0].contains("failures=4200"), "{lines:?}");
            confirmed("one");
            assert!(told().is_empty());
            // Its holds are gone, so nothing was confirmed.
            failed("two", &reason);
            let lines = told();
            assert!(lines.len() == 2 && lines[0].contains("failures=1 "), "{lines:?}");
        });
    }

    #[test]
    fn the_number_of_reasons_in_the_log_is_bounded() {
        let (log, clock, lines) = (RenewalLog::default(), Clock::manual(), Lines::default());
        tracing::subscriber::with_default(lines.clone(), || {
            (0..100).for_each(|number| {
                log.failed("one", &number.to_string().into(), Duration::ZERO, clock.now());
            });
        });
        assert_eq!(lines.0.lock().unwrap().len(), MOST_REASONS);
    }
}
