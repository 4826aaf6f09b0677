//! Lies about the limits of the reference store: how long a lease is kept, how many locks and names there may be, and
//! whether a token is drawn in the step that grants.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::PoisonError;
use std::time::Duration;

use dlock::Mode;
use dlock_contract::{Claim, Owner};

use crate::lies::Lie;
use crate::server::{Server, State};

impl Server {
    /// How long the server keeps a lease: for its ttl.
    pub(crate) fn lease(&self, ttl: Duration) -> Duration {
        let most = if self.tells(Lie::KeepsAMinute) { Duration::from_secs(60) } else { Duration::MAX };
        self.stored(ttl).min(most)
    }

    /// The same after an attempt.
    pub(crate) fn granted_lease(&self, claim: &Claim) -> Duration {
        let lease = self.lease(claim.ttl);
        let is_short = match self.lie() {
            // Longer ones are also seen by a look.
            Some(Lie::ShortLease) => lease < Duration::from_secs(5),
            Some(Lie::KeepsReadersShort) => claim.mode == Mode::Read,
            Some(Lie::KeepsPermitsShort) => matches!(claim.mode, Mode::Permits(_)),
            _ => false,
        };
        if is_short { lease.mul_f64(0.75) } else { lease }
    }

    /// For lies: a lease that was granted or renewed on this way has three quarters of its length.
    pub(crate) fn cut(&self, lie: Lie, state: &mut State, name: &str, owner: &Owner, ttl: Duration) {
        let records = state.locks.get_mut(name).into_iter().flatten();
        for record in records.filter(|record| self.tells(lie) && record.owner == *owner) {
            record.until = record.until.before(ttl / 4);
        }
    }

    /// For lies: there is room for 64 locks.
    pub(crate) fn evict_oldest(&self, state: &mut State) {
        if !self.tells(Lie::EvictsOldest) || state.locks.len() <= 64 {
            return;
        }
        let since = |name: &String| state.records(name).iter().map(|record| record.since).min();
        if let Some(oldest) = state.locks.keys().min_by_key(|name| since(name)).cloned() {
            state.locks.remove(&oldest);
        }
    }

    /// For lies: the next token, for a claim that has not won.
    pub(crate) fn draw(&self, claim: &Claim) -> u64 {
        let mut state = self.state();
        let fence = state.fences.entry(self.name(&claim.key)).or_default();
        *fence += 1;
        *fence
    }

    /// For lies: the claim has won, with a token that was drawn before.
    pub(crate) fn set_token(&self, claim: &Claim, token: u64) {
        let mut state = self.state();
        let records = state.locks.get_mut(&self.name(&claim.key)).into_iter().flatten();
        records.filter(|record| record.owner == claim.owner).for_each(|record| record.token = token);
    }

    /// For lies: keys of one hash are one lock.
    pub(crate) fn first_of_its_hash(&self, name: &str) -> String {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let hash = (hasher.finish() & 0xffff) as u16;
        let mut hashed = self.hashed.lock().unwrap_or_else(PoisonError::into_inner);
        hashed.entry(hash).or_insert_with(|| name.to_owned()).clone()
    }
}
