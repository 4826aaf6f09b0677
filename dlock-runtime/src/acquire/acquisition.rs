//! One acquisition on its way, and what becomes of it: a guard, or an error that says what it was about.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::engine::{Home, is_forked};
use dlock_contract::{BootInstant, Claim, Error, ErrorKind, Hold, Result};

use crate::acquire::request::Parked;
use crate::events::observe::Event;
use crate::events::shutdown::shut_down;
use crate::guard::Guard;
use crate::guard::scope;
use crate::hold::abandon::abandon_later;
use crate::hold::shared::Shared;
use crate::hold::store::Store;
use crate::hold::tenure::{NewTenure, Tenure};
use crate::options::resolved::Resolved;
use crate::queue::{CohortState, Turn};
use crate::site::Label;

/// An attempt is given this long even if the wait is shorter: opening a connection takes its time.
pub(super) const LEAST_PATIENCE: Duration = Duration::from_millis(250);

/// One acquisition on its way. It may have left something in the store; dropping it then cleans up on our thread.
pub(crate) struct Acquisition {
    pub(super) shared: Arc<Shared<Tenure>>,
    pub(super) store: Arc<Store>,
    pub(super) claim: Arc<Claim>,
    /// Goes to the tenure.
    pub(super) label: Option<Label>,
    pub(super) options: Resolved,
    /// The thread that goes on with the caller's task, if it is all that its runtime has.
    pub(super) home: Option<Home>,
    /// The thread that sleeps until this is over.
    pub(super) parked: Option<Box<Parked>>,
    /// One of several, which are handed out once all are there.
    pub(super) sorted: bool,
    pub(super) since: BootInstant,
    pub(super) wait_ends: BootInstant,
    pub(super) attempts: u32,
    pub(super) turn: Option<Turn>,
    /// Of a hold that may be passed on.
    pub(super) cohort: Option<Box<CohortState>>,
    /// It was passed on to us.
    pub(super) passed: bool,
    /// Among the jobs that a shutdown waits for.
    pub(super) counted: bool,
    pub(super) armed: bool,
    /// What was to undo it was not answered, and may come late.
    pub(super) undo_unconfirmed: bool,
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if (self.armed || self.turn.is_some()) && is_forked() {
            // A copy of what the parent has.
            std::mem::forget(self.turn.take());
            return;
        }
        if self.armed {
            if let Some(turn) = &self.turn {
                turn.leave();
            }
            let turn = Box::new(self.turn.take());
            abandon_later(&self.store, self.claim.clone(), turn);
        }
        if self.counted {
            self.shared.jobs.leave();
        }
    }
}

impl Acquisition {
    /// The lock is ours: from here on a guard releases it.
    pub(super) fn begin(&mut self, mut hold: Hold, waited: Duration) -> Result<Guard> {
        if !self.passed {
            // Our thread may have asked for it; from here on it is this caller's, as its neighbours are.
            hold.claim = self.claim.clone();
        }
        if let Some(turn) = self.turn.as_ref().filter(|_| self.claim.mode.is_shared()) {
            turn.shares();
        }
        let label = self.label.take().ok_or_else(|| Error::new(ErrorKind::Internal, "an acquisition began twice"))?;
        self.armed = false;
        let since = if self.passed { self.shared.clock.now() } else { hold.validity.from };
        let mut cohort = self.cohort.take();
        if let Some(cohort) = &mut cohort
            && !self.passed
        {
            cohort.begin(since);
        }
        let passes = cohort.is_some();
        let tenure = Arc::new(Tenure::begin(NewTenure {
            hold,
            store: self.store.clone(),
            shared: self.shared.clone(),
            label,
            parent: scope::innermost(),
            cadence: self.options.cadence,
            max_hold: self.options.max_hold,
            min_hold: self.options.min_hold,
            recorded: self.options.record && self.store.backend.capabilities().once_per,
            home: self.home,
            #[cfg(debug_assertions)]
            sorted: self.sorted,
            turn: self.turn.take(),
            since,
            cohort,
        }));
        let guard = Guard::new(tenure.clone());
        if self.claim.mode.is_shared() {
            // The turn was the right to ask, and others may hold this beside us.
            tenure.pass_turn();
        } else if self.store.hands_on() && !passes {
            // The next of this process takes its place in the store's line now, so that the release can hand it the lock;
            // unless the release asks for it.
            tenure.share_turn();
        } else {
            tenure.keep_turn();
        }
        let shared = &self.shared;
        let added = if shared.shutdown.is_closed() { Err(shut_down()) } else { shared.renewals.add(&tenure) };
        if let Err(error) = added {
            // Nobody was told that it began, so nobody is told that it ends; what its store noted of it is undone.
            tenure.end();
            self.armed = true;
            return Err(self.explained(error));
        }
        if !self.sorted {
            tenure.handed_out();
        }
        shared.events.tell(&tenure.label, &Event::Acquired { waited, attempts: self.attempts });
        Ok(guard)
    }

    pub(super) fn explained(&self, error: Error) -> Error {
        error.with_key(self.claim.key.as_str()).with_backend(&self.store.name).with_attempts(self.attempts)
    }

    /// A shutdown waits until this is over: until the hold is in the watchdog's table, or our thread abandons it.
    pub(super) fn count(&mut self) {
        self.shared.jobs.enter();
        self.counted = true;
    }

    /// Tells of the failure, and what it was about.
    pub(super) fn failed(&self, error: Error, waited: Duration) -> Error {
        let event = match error.kind() {
            ErrorKind::Busy | ErrorKind::QueueFull { .. } => Event::Busy,
            ErrorKind::AlreadyRun => Event::AlreadyRun,
            ErrorKind::WaitTimeout => Event::TimedOut { waited, attempts: self.attempts },
            kind => Event::Failed { kind: kind.clone() },
        };
        if let Some(label) = &self.label {
            self.shared.events.tell(label, &event);
        }
        self.explained(error)
    }
}

pub(super) fn busy(left: Option<Duration>) -> Error {
    Error::new(ErrorKind::Busy, "somebody else holds the lock").with_retry_after(left)
}

pub(super) fn already_run() -> Error {
    Error::new(ErrorKind::AlreadyRun, "the run of this period was started already")
}

pub(super) fn timed_out(left: Option<Duration>) -> Error {
    let waited = "the wait ran out while others held the lock";
    // Two callers that hold what the other one waits for: here each can read its half of it.
    let text = match scope::held_keys() {
        held if held.is_empty() => Cow::Borrowed(waited),
        held => Cow::Owned(format!("{waited}; the caller itself holds {}", held.join(", "))),
    };
    Error::new(ErrorKind::WaitTimeout, text).with_retry_after(left)
}
