//! Refusals that no retry can mend, and warnings, kept until an answer of the store says otherwise.
//! [`verify`](crate::verify) reads them, because it asks no store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Health, Result};

/// The refusals of one store.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: Mutex<Refusals>,
    /// A grant costs one load while no ttl was refused.
    has_ttl: AtomicBool,
}

#[derive(Debug, Default)]
struct Refusals {
    /// Why the store takes no locks at all.
    not_ready: Option<Error>,
    /// Reasons why a promise of the store is smaller, though it takes locks.
    warnings: Vec<String>,
    /// The last ttl that the store itself has refused.
    ttl: Option<RefusedTtl>,
}

#[derive(Debug)]
struct RefusedTtl {
    asked: Duration,
    /// The shortest and the longest ttl that the store takes, as its error said.
    range: (Duration, Duration),
    error: Error,
}

impl Findings {
    /// Notes the answer of a store that was asked whether it takes locks. An error that a retry can mend is no finding.
    pub(crate) fn note_health(&self, answer: &Result<Health>) {
        match answer {
            Ok(health) => {
                let mut found = self.found();
                (found.not_ready, found.warnings) = (None, health.findings.clone());
            }
            Err(error) if !error.is_retryable() => self.found().not_ready = Some(error.again()),
            Err(_) => {}
        }
    }

    /// The warnings in the last answer of a store that takes locks.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.found().warnings.clone()
    }

    /// The store was asked for locks with this ttl: whether it has granted one.
    pub(crate) fn note_answer(&self, ttl: Duration, answer: std::result::Result<bool, &Error>) {
        match answer {
            Err(error) => {
                if let ErrorKind::TtlOutOfRange { min, max } = *error.kind() {
                    self.found().ttl = Some(RefusedTtl { asked: ttl, range: (min, max), error: error.again() });
                    self.has_ttl.store(true, Ordering::Relaxed);
                }
            }
            Ok(true) if self.has_ttl.load(Ordering::Relaxed) => {
                let mut found = self.found();
                if found.ttl.as_ref().is_some_and(|refused| refused.applies_to(ttl)) {
                    found.ttl = None;
                    self.has_ttl.store(false, Ordering::Relaxed);
                }
            }
            Ok(_) => {}
        }
    }

    /// Fails if a lock cannot be taken, or not with this ttl where one is given.
    pub(crate) fn check(&self, ttl: Option<Duration>) -> Result<()> {
        let found = self.found();
        let refused = found.ttl.as_ref().filter(|refused| ttl.is_some_and(|ttl| refused.applies_to(ttl)));
        match found.not_ready.as_ref().or(refused.map(|refused| &refused.error)) {
            Some(error) => Err(error.again()),
            None => Ok(()),
        }
    }

    fn found(&self) -> MutexGuard<'_, Refusals> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RefusedTtl {
    fn applies_to(&self, ttl: Duration) -> bool {
        let (min, max) = self.range;
        ttl == self.asked || ttl < min || ttl > max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn refusal() -> Error {
        Error::new(ErrorKind::TtlOutOfRange { min: SECOND, max: 9 * SECOND }, "too long for this server")
    }

    #[test]
    fn a_ttl_that_the_store_refuses_is_refused_until_it_is_granted() {
        let findings = Findings::default();
        findings.check(Some(20 * SECOND)).unwrap();
        findings.note_answer(20 * SECOND, Err(&refusal()));
        // The server grants less than it said.
        findings.note_answer(8 * SECOND, Err(&refusal()));
        for ttl in [8, 10, 20] {
            let error = findings.check(Some(ttl * SECOND)).unwrap_err();
            assert!(error.to_string().contains("too long for this server"), "{error}");
        }
        findings.check(Some(2 * SECOND)).unwrap();
        findings.check(None).unwrap();
        findings.note_answer(2 * SECOND, Ok(true));
        findings.note_answer(20 * SECOND, Ok(false));
        findings.check(Some(20 * SECOND)).unwrap_err();
        findings.note_answer(20 * SECOND, Ok(true));
        findings.check(Some(20 * SECOND)).unwrap();
    }

    #[test]
    fn a_store_that_is_not_ready_stays_so_until_it_is_asked_again() {
        let findings = Findings::default();
        findings.note_health(&Err(Error::outage("down")));
        findings.check(None).unwrap();
        findings.note_health(&Err(Error::new(ErrorKind::SchemaMismatch, "no unique index")));
        findings.note_health(&Err(Error::outage("down")));
        let error = findings.check(None).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::SchemaMismatch);
        findings.note_health(&Ok(Health::new()));
        findings.check(None).unwrap();
    }
}
