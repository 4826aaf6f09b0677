//! How holds of the reference store go on and end.

use std::time::Duration;

use dlock::{Clock, HoldId, LockKey, Mode};
use dlock_contract::{BootInstant, Claim, Owner, Reservation, RunEnd};

use crate::lies::Lie;
use crate::server::{Server, State};

/// Why nothing was reserved.
pub(crate) enum Refused {
    Awaited,
    Lost,
}

impl Server {
    /// Is the lock still this owner's? Then for another ttl.
    pub(crate) fn renew(&self, claim: &std::sync::Arc<Claim>, client: u64, wall: u64, alone: bool) -> bool {
        let (name, now) = (self.name(&claim.key), self.now(wall));
        let mut state = self.state();
        if state.neighbours.contains(&claim.owner) {
            return false;
        }
        let Some(records) = state.locks.get_mut(&name) else {
            if self.tells(Lie::RenewalCreates) && alone && !state.broken.contains_key(&HoldId::of(&claim.owner)) {
                self.grant(&mut state, &name, claim, client, wall);
                return true;
            }
            return false;
        };
        let ours = |record: &&mut crate::server::Record| {
            self.same(&record.owner, &claim.owner) && (!record.kept || self.tells(Lie::KeptIsRenewed))
        };
        if self.tells(Lie::RenewsForAnother) {
            let until = now.after(self.lease(claim.ttl));
            let others = records.iter_mut().filter(|record| !ours(record));
            others.for_each(|record| record.until = until);
        }
        let Some(record) = records.iter_mut().find(ours) else { return self.tells(Lie::RenewsNothing) };
        if record.until <= now && !self.tells(Lie::RenewsExpired) || record.pushed && self.tells(Lie::HandsOverOnce) {
            return false;
        }
        let until = now.after(self.lease(claim.ttl));
        let was_pushed = std::mem::take(&mut record.pushed);
        match self.lie() {
            // Only short leases: the suite compares the remaining time of longer ones with the answer.
            Some(Lie::RenewsInWords) if claim.ttl < Duration::from_secs(5) => {}
            Some(Lie::RenewedForEver) => record.until = BootInstant::NEVER,
            Some(Lie::RenewsAllReaders) if claim.mode == Mode::Read => {
                records.iter_mut().for_each(|record| record.until = until);
            }
            _ => record.until = until,
        }
        if was_pushed {
            self.cut(Lie::RenewsHandedOverShort, &mut state, &name, &claim.owner, claim.ttl);
        }
        true
    }

    /// Prolongs the lock and gives the first of the tokens that are reserved for it.
    pub(crate) fn reserve(
        &self,
        claim: &std::sync::Arc<Claim>,
        asked: Reservation,
        client: u64,
        wall: u64,
    ) -> Result<u64, Refused> {
        let name = self.name(&claim.key);
        let awaited = self.state().lines.get(&name).is_some_and(|line| !line.is_empty());
        if awaited && !asked.even_if_awaited && !self.tells(Lie::ReservesBeforeOthers) {
            return Err(Refused::Awaited);
        }
        let ours = self.tells(Lie::ReservesOnly) && self.holder(&name) == Some(claim.owner)
            || self.renew(claim, client, wall, true);
        if !ours && !self.tells(Lie::ReservesForLost) {
            return Err(Refused::Lost);
        }
        let mut state = self.state();
        self.cut(Lie::ReservesShort, &mut state, &name, &claim.owner, claim.ttl);
        let fence = state.fences.entry(self.counted(&name, claim, client)).or_default();
        let first = *fence + 1;
        if !self.tells(Lie::ReservesNothing) {
            *fence += u64::from(asked.tokens);
        }
        Ok(first)
    }

    pub(crate) fn end(
        &self,
        claim: &Claim,
        keep: Option<Duration>,
        run: Option<RunEnd>,
        client: u64,
        wall: u64,
    ) -> bool {
        let (name, now) = (self.name(&claim.key), self.now(wall));
        let mut state = self.state();
        let ours = state.locks.get_mut(&name).and_then(|records| {
            records.iter_mut().find(|record| {
                self.same(&record.owner, &claim.owner) && (!record.kept || self.tells(Lie::KeptIsReleased))
            })
        });
        let Some(record) = ours else {
            if self.tells(Lie::ReleasesAnybody) && state.locks.remove(&name).is_some() {
                self.freed(&mut state, &name, wall);
            }
            let dead = state.evicted.contains(&claim.owner) && self.tells(Lie::DeadSessionWasOurs);
            return dead && state.records(&name).is_empty() || self.tells(Lie::LateReleaseIsFine);
        };
        let (held, since, began_ms) = (record.until > now, record.since, record.began_ms);
        record.depth -= 1;
        if record.depth > 0 {
            return true;
        }
        let keep = keep.filter(|_| !(claim.mode.is_shared() && self.tells(Lie::KeepsNoShare)));
        if let Some(keep) = keep {
            (record.kept, record.depth) = (true, 1);
            record.until = match self.lie() {
                Some(Lie::KeepsHalf) => now.after(keep / 2),
                Some(Lie::KeepsForTtl) => record.until,
                _ => now.after(keep),
            };
        } else {
            let readers = claim.mode == Mode::Read && self.tells(Lie::ReleaseEndsReaders);
            state.remove(&name, |record| self.same(&record.owner, &claim.owner) || readers && record.since < since);
        }
        self.ended(&mut state, &name, claim, run, began_ms);
        state.released_by.insert(name.clone(), client);
        if self.tells(Lie::LeavesTombstone) {
            state.traces.push((name.clone(), "a release".into()));
        }
        if self.tells(Lie::LeavesReader) && claim.mode == Mode::Read {
            state.traces.push((name.clone(), "a reader".into()));
        }
        if self.tells(Lie::ReleaseEndsOlder) {
            state.locks.retain(|_, records| {
                records.retain(|record| record.client != client || record.since > since);
                !records.is_empty()
            });
        }
        self.freed(&mut state, &name, wall);
        held && !self.tells(Lie::FreesSilently)
    }

    /// Makes the work of a hold final, if it is held.
    pub(crate) fn settle(&self, claim: &Claim) -> bool {
        let name = self.name(&claim.key);
        let mut state = self.state();
        if !state.records(&name).iter().any(|record| record.owner == claim.owner) {
            return self.tells(Lie::RefusedIsFine);
        }
        if !self.tells(Lie::SettlesInWords) {
            state.settled.insert(claim.owner);
        }
        true
    }

    pub(crate) fn abandon(&self, claim: &Claim, delivered: bool, wall: u64) {
        let name = self.name(&claim.key);
        let mut state = self.state();
        let left = self.leave(&mut state, &name, &claim.owner);
        if left && self.tells(Lie::AbandonKeepsPlace) {
            state.traces.push((name.clone(), "a place".into()));
        }
        if left && claim.mode == Mode::Write && self.tells(Lie::GaveUpWriterBars) {
            state.barred.insert(name.clone());
        }
        let anybody = self.tells(Lie::AbandonFreesAnybody);
        let ours = state.remove(&name, |record| {
            let kept = record.pushed && self.tells(Lie::KeepsUntaken) || delivered && self.tells(Lie::KeepsDelivered);
            self.same(&record.owner, &claim.owner) && !record.kept && !kept || anybody
        });
        self.give_back(&mut state, &name, claim);
        if ours && self.tells(Lie::CounterAbandoned) {
            state.fences.remove(&name);
        }
        if ours && delivered && self.tells(Lie::AbandonLeavesGhost) {
            state.traces.push((name.clone(), "a grant".into()));
        }
        if left || ours {
            self.freed(&mut state, &name, wall);
        }
    }

    /// The session of a hold has ended.
    pub(crate) fn session_ended(&self, claim: &Claim) {
        if self.tells(Lie::SessionOutlives) {
            return;
        }
        let name = self.name(&claim.key);
        let mut state = self.state();
        if state.remove(&name, |record| record.owner == claim.owner && !record.kept) {
            self.freed(&mut state, &name, Clock::system().wall_ms());
        }
    }

    /// Tells the owners of the end of their sessions. It is a hint, and the others hear it too.
    fn tell_ends(&self, state: &State, owners: &[Owner]) {
        let told: Vec<_> =
            state.sessions.iter().map(|(owner, session)| (session.clone(), owners.contains(owner))).collect();
        let late = self.tells(Lie::TellsLate);
        if owners.is_empty() || told.is_empty() || self.tells(Lie::TellsNobody) {
            return;
        }
        tokio::spawn(async move {
            // As long as it takes to see it.
            tokio::time::sleep(Duration::from_millis(if late { 1000 } else { 50 })).await;
            told.iter().for_each(|(session, has_ended)| session.send_modify(|ended| *ended |= has_ended));
        });
    }

    pub(crate) fn evict(&self, key: &LockKey) {
        let name = self.name(key);
        let mut state = self.state();
        let evicted: Vec<_> = state.locks.remove(&name).unwrap_or_default().iter().map(|record| record.owner).collect();
        state.evicted.extend(&evicted);
        if self.tells(Lie::LosesNeighbours) {
            state.lose_neighbours();
        }
        self.tell_ends(&state, &evicted);
        state.released_by.remove(&name);
        if self.tells(Lie::CounterInRecord) {
            state.fences.remove(&name);
        }
        self.freed(&mut state, &name, Clock::system().wall_ms());
    }

    pub(crate) fn restart(&self) {
        let mut state = self.state();
        if self.tells(Lie::ReadyInQuarantine) {
            state.quarantined_until = Some(Clock::system().now().after(Duration::from_secs(2)));
        }
        if self.tells(Lie::RestartForgetsTokens) {
            state.fences.clear();
        }
        if self.tells(Lie::RestartForgetsHolds) {
            state.locks.clear();
        }
    }

    /// Ends what has run out.
    pub(crate) fn tidy(&self, state: &mut State, name: &str, wall: u64) {
        let now = self.now(wall);
        if let Some(line) = state.lines.get_mut(name) {
            line.retain(|place| place.until > now);
        }
        let over = state.records(name).iter().all(|record| record.until <= now);
        let mut runs = false;
        let ended = state.remove(name, |record| {
            let leaks = matches!(record.mode, Mode::Permits(_)) && !record.kept && self.tells(Lie::LeaksPermits);
            let ends = record.until <= now && !self.tells(Lie::NeverExpires) && (over || !leaks);
            runs |= ends && record.once;
            ends
        });
        if runs && self.tells(Lie::ExpiryForgetsStart) {
            state.runs.remove(name);
        }
        if ended {
            state.released_by.remove(name);
            if self.tells(Lie::CounterExpires) {
                state.fences.remove(name);
            }
            self.freed(state, name, wall);
        }
    }
}
