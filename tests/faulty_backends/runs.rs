//! The reference store: its records of runs.

use std::time::{Duration, UNIX_EPOCH};

use dlock::{Clock, LastSuccess, LockKey, OncePer};
use dlock_contract::{Claim, Owner, RunEnd};

use crate::lies::Lie;
use crate::server::{Server, State};

/// The latest start under a key.
pub(crate) struct Run {
    boundary: u128,
    owner: Owner,
    ended: bool,
}

impl Server {
    /// Was the run of this claim's period started already?
    pub(crate) fn is_over(&self, state: &mut State, claim: &Claim, client: u64, wall: u64) -> bool {
        let Some(once) = claim.once_per.as_deref() else { return false };
        if self.tells(Lie::ChecksRunOnce) && !once.rerun && state.due.contains(&claim.owner) {
            return false;
        }
        let name = self.name(&claim.key);
        let held = !state.records(&name).is_empty();
        let boundary = self.boundary(*once, wall);
        let over = state.runs.get(&self.run_name(&name, client)).is_some_and(|run| {
            let never = self.tells(Lie::NeverReruns) && !state.successes.contains_key(&name);
            let lies = if held { self.tells(Lie::RerunIsNoWait) } else { never };
            let goes_on = !run.ended || held && self.tells(Lie::KeptGoesOn);
            let own = run.owner == claim.owner && !run.ended && !self.tells(Lie::OwnStartIsOver);
            let again = own || once.rerun && goes_on && !lies;
            run.boundary >= boundary && !again
                || run.ended && once.offset.is_zero() && self.tells(Lie::EndedForGood)
                || held && !once.rerun && self.tells(Lie::HeldIsAlreadyRun)
        });
        if !over {
            state.due.insert(claim.owner);
        }
        over
    }

    /// The same check alone, for lies that ask in two steps. An owner may always ask again.
    pub(crate) fn is_late(&self, claim: &Claim, client: u64, wall: u64) -> bool {
        let name = self.name(&claim.key);
        let mut state = self.state();
        self.tidy(&mut state, &name, wall);
        let ours = state.records(&name).iter().any(|record| record.owner == claim.owner);
        !ours && self.is_over(&mut state, claim, client, wall)
    }

    /// Notes the start of a claim's run; gives its time.
    pub(crate) fn start(&self, state: &mut State, name: &str, claim: &Claim, client: u64, wall: u64) -> u64 {
        if let Some(once) = claim.once_per.as_deref() {
            let run = Run { boundary: self.boundary(*once, wall), owner: claim.owner, ended: false };
            state.runs.insert(self.run_name(name, client), run);
        }
        Clock::system().wall_ms()
    }

    /// Nothing was run under this claim. With `rerun` a start that has not ended stays, since it may be another one's.
    pub(crate) fn give_back(&self, state: &mut State, name: &str, claim: &Claim) {
        let Some(once) = claim.once_per.as_deref() else { return };
        let rerun = once.rerun && !self.tells(Lie::AbandonForgetsRerun);
        if rerun || self.tells(Lie::AbandonIsStart) {
            return;
        }
        for (_, run) in state.runs.iter_mut().filter(|(of, _)| of.starts_with(name)) {
            let ours = run.owner == claim.owner && !run.ended;
            if ours || self.tells(Lie::AbandonForgetsAll) {
                run.boundary -= 1;
            }
        }
    }

    /// Notes how a run has ended, if it has.
    pub(crate) fn ended(&self, state: &mut State, name: &str, claim: &Claim, end: Option<RunEnd>, began_ms: u64) {
        let Some(end) = end else {
            if self.tells(Lie::ReleaseForgetsStart) {
                state.runs.remove(name);
            }
            let ends = claim.once_per.as_deref().is_some_and(|once| once.rerun) && self.tells(Lie::ReleaseEndsRun);
            for (of, run) in state.runs.iter_mut().filter(|_| ends) {
                run.ended |= of.starts_with(name);
            }
            return;
        };
        let failed = end == RunEnd::Failed;
        let period = claim.once_per.is_some();
        for (of, run) in state.runs.iter_mut().filter(|_| period || self.tells(Lie::AnyEndIsEnd)) {
            run.ended |= of.starts_with(name) && !(failed && self.tells(Lie::FailureIsNoEnd));
        }
        let took = match end {
            RunEnd::Succeeded { took } => took,
            RunEnd::Failed if period && self.tells(Lie::FailureIsSuccess) => Duration::ZERO,
            RunEnd::Failed => return,
        };
        if !period && self.tells(Lie::RecordsPeriodsOnly) {
            return;
        }
        let started = UNIX_EPOCH + Duration::from_millis(began_ms);
        state.successes.insert(name.to_owned(), LastSuccess::new(started, took, claim.note.clone()));
    }

    pub(crate) fn last_success(&self, key: &LockKey) -> Option<LastSuccess> {
        self.state().successes.get(&self.name(key)).cloned()
    }

    fn run_name(&self, name: &str, client: u64) -> String {
        if self.tells(Lie::StartsPerClient) { format!("{name} {client}") } else { name.to_owned() }
    }

    /// The boundary that is nearest by the store's clock.
    fn boundary(&self, once: OncePer, wall: u64) -> u128 {
        let wall = if self.tells(Lie::PeriodOfClient) { wall } else { Clock::system().wall_ms() };
        let offset = if self.tells(Lie::IgnoresOffset) { 0 } else { once.offset.as_millis() };
        let period = once.period.as_millis();
        (u128::from(wall) + period / 2).saturating_sub(offset) / period * period + offset
    }
}
