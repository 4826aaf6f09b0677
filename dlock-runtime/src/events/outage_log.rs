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

use crate::events::lines::{Counts, OutageLine};
use crate::site::StoreLabel;

/// An outage ends at the first answer that comes this long after its last failure.
const QUIET_TIME: Duration = Duration::from_secs(5);

/// The time between two lines about one outage.
const LINE_INTERVAL: Duration = Duration::from_secs(30);

const BEGINS: &str = "the store fails; further failures are counted, and logged one by one at the level debug";
const LASTS: &str = "the store still fails";
const ENDS: &str = "the store no longer fails";
const IS_CUT_OFF: &str = "the registry is shut down while the store fails";

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
    /// A request of a call that may ask again. It is not counted.
    Request,
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

impl Counts {
    fn add(&mut self, failed: Failed) {
        match failed {
            Failed::Request => {}
            Failed::Call => self.calls += 1,
            Failed::Renewal => self.renewals += 1,
            Failed::Release => self.releases += 1,
        }
    }
}

impl OutageLog {
    /// Notes a failed request. Returns the end of an outage that is over, and the line about this one.
    pub(crate) fn note_failure(
        &self,
        store: &StoreLabel,
        failed: Failed,
        why: Why<'_>,
        now: BootInstant,
    ) -> [Option<OutageLine>; 2] {
        if self.has_ended.load(Ordering::Relaxed) {
            return [None, None];
        }
        let mut outages = self.outages();
        self.has_outages.store(true, Ordering::Relaxed);
        let lasts = |outage: &&mut Outage| outage.answered.is_none() || now.since(outage.last) < OUTAGE_MEMORY;
        if let Some(outage) = outages.get_mut(&store.name).filter(lasts) {
            (outage.last, outage.answered) = (now, None);
            outage.counts.add(failed);
            let is_due = now.since(outage.told) >= LINE_INTERVAL;
            if is_due {
                outage.told = now;
            }
            return [None, is_due.then(|| outage.line(LASTS, now).because(why.reason, why.code))];
        }
        let counts = Counts::default();
        let mut outage = Outage { store: store.clone(), since: now, last: now, answered: None, told: now, counts };
        outage.counts.add(failed);
        let begins = OutageLine { so_far: None, ..outage.line(BEGINS, now).because(why.reason, why.code) };
        let before = outages.insert(store.name.clone(), outage);
        [before.map(|before| before.end(ENDS)), Some(begins)]
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

    /// Notes an answer of the store. Returns the end of an outage that is over.
    pub(crate) fn note_answer(&self, backend: &str, now: impl FnOnce() -> BootInstant) -> Option<OutageLine> {
        if !self.has_outages.load(Ordering::Relaxed) {
            return None;
        }
        let now = now();
        let mut outages = self.outages();
        let is_over = outages.get_mut(backend).is_some_and(|outage| {
            outage.answered.get_or_insert(now);
            now.since(outage.last) >= QUIET_TIME
        });
        let ended = if is_over { outages.remove(backend) } else { None };
        self.has_outages.store(!outages.is_empty(), Ordering::Relaxed);
        ended.map(|ended| ended.end(ENDS))
    }

    /// Returns a line about each outage that lasts at the shutdown of the registry. Later failures are no outages.
    pub(crate) fn end(&self) -> Vec<OutageLine> {
        self.has_ended.store(true, Ordering::Relaxed);
        let outages = std::mem::take(&mut *self.outages());
        outages.values().map(|outage| outage.end(IS_CUT_OFF)).collect()
    }

    fn outages(&self) -> MutexGuard<'_, HashMap<Arc<str>, Outage>> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outage {
    fn line(&self, text: &'static str, now: BootInstant) -> OutageLine {
        let so_far = Some((now.since(self.since), self.counts));
        OutageLine { store: self.store.clone(), text, reason: None, code: None, so_far }
    }

    fn end(&self, text: &'static str) -> OutageLine {
        self.line(text, self.answered.unwrap_or(self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_store::Clock;

    const SECOND: Duration = Duration::from_secs(1);

    fn store(name: &str) -> StoreLabel {
        StoreLabel { name: name.into(), kind: "redis", host: Some("cache:6379".into()) }
    }

    fn why(reason: &Arc<str>) -> Why<'_> {
        Why { reason, code: &None }
    }

    fn counts(line: &OutageLine) -> Counts {
        line.so_far.unwrap().1
    }

    #[test]
    fn an_outage_of_thirty_seconds_is_three_lines() {
        let (log, clock) = (OutageLog::default(), Clock::manual());
        let (refused, silent): (Arc<str>, Arc<str>) = ("refused".into(), "silent".into());
        let mut told = Vec::new();
        for call in 0..9300 {
            let why = why(if call < 9000 { &refused } else { &silent });
            told.extend(log.note_failure(&store("one"), Failed::Call, why, clock.now()).into_iter().flatten());
            // Another server of the same store lives.
            told.extend(log.note_answer("one", || clock.now()));
            clock.advance(SECOND / 300);
        }
        for failed in [[Failed::Renewal; 7].as_slice(), &[Failed::Release]].concat() {
            told.extend(log.note_failure(&store("one"), failed, why(&silent), clock.now()).into_iter().flatten());
        }
        let [begins, lasts] = &*told else { panic!("{} lines", told.len()) };
        assert_eq!((begins.text, begins.reason.as_ref(), begins.so_far), (BEGINS, Some(&refused), None));
        assert_eq!((lasts.text, lasts.reason.as_ref(), lasts.so_far.unwrap().0.as_secs()), (LASTS, Some(&silent), 30));
        clock.advance(QUIET_TIME);
        let ends = log.note_answer("one", || clock.now()).unwrap();
        assert_eq!((ends.text, counts(&ends)), (ENDS, Counts { calls: 9300, renewals: 7, releases: 1, lost: 0 }));
        assert!(log.note_answer("one", || clock.now()).is_none());
    }

    #[test]
    fn each_store_has_its_own_outage() {
        let (log, clock, reason) = (OutageLog::default(), Clock::manual(), "refused".into());
        let fails = |name| {
            log.note_failure(&store(name), Failed::Renewal, why(&reason), clock.now())
                .map(|line| line.map(|line| (line.text, line.so_far.map(|(_, counts)| counts.renewals))))
        };
        let answers = |name| log.note_answer(name, || clock.now()).map(|line| line.text);
        assert_eq!([fails("one"), fails("two")], [[None, Some((BEGINS, None))]; 2]);
        clock.advance(QUIET_TIME);
        assert_eq!(answers("two"), Some(ENDS));
        assert_eq!((log.is_failing("one"), log.is_failing("two")), (true, false));
        // Renewals of a long lease are far apart.
        clock.advance(10 * SECOND);
        assert_eq!(fails("one"), [None, None]);
        // The store's holds are gone, so there is no request and no answer: nobody knows that it has come back.
        clock.advance(OUTAGE_MEMORY);
        assert_eq!(fails("one"), [None, Some((LASTS, Some(3)))]);
        // One answer, and then nobody asks for long.
        assert_eq!(answers("one"), None);
        clock.advance(OUTAGE_MEMORY);
        assert_eq!(fails("one"), [Some((ENDS, Some(3))), Some((BEGINS, None))]);
    }

    #[test]
    fn a_shutdown_tells_what_has_failed() {
        let (log, clock, reason) = (OutageLog::default(), Clock::manual(), "refused".into());
        for name in ["silent", "back"] {
            log.note_failure(&store(name), Failed::Call, why(&reason), clock.now());
        }
        assert!(log.note_answer("back", || clock.now()).is_none());
        let last = log.end();
        assert!(last.len() == 2 && last.iter().all(|line| line.text == IS_CUT_OFF && counts(line).calls == 1));
        let [ends, begins] = log.note_failure(&store("silent"), Failed::Release, why(&reason), clock.now());
        assert!(ends.is_none() && begins.is_none() && log.end().is_empty());
    }

    #[test]
    fn the_end_of_an_outage_counts_the_lost_holds() {
        let (log, clock) = (OutageLog::default(), Clock::manual());
        log.note_loss("one");
        log.note_failure(&store("one"), Failed::Renewal, why(&"refused".into()), clock.now());
        (0..10).for_each(|_| log.note_loss("one"));
        log.note_loss("two");
        clock.advance(QUIET_TIME);
        assert_eq!(counts(&log.note_answer("one", || clock.now()).unwrap()).lost, 10);
    }
}
