//! One key: its holders, its wait queue, and the grants.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, BootInstant, Claim, Error, ErrorKind, Hold, HoldId, Holder, LockState, Mode, Note, Owner, Queue,
    Reservation, Reserved, Result, RunEnd, Signal, Validity, Wake,
};
use dlock_store::Clock;
use tokio::sync::oneshot;

use super::runs::Runs;

/// Exists only while there is a holder or a waiter. All its modes are of one family.
#[derive(Debug, Default)]
pub(super) struct Lock {
    /// In the order of their grants.
    holders: Vec<ActiveHold>,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct ActiveHold {
    /// `None`: the hold is over, and its share stays taken until `ends`.
    owner: Option<Owner>,
    mode: Mode,
    slot: Option<u32>,
    token: u64,
    ends: BootInstant,
    /// The time of the grant by the wall clock, for the record of runs.
    began_ms: u64,
    note: Note,
    /// Whether it was handed over and has not been confirmed since.
    unconfirmed: bool,
}

impl ActiveHold {
    fn has_id(&self, id: HoldId) -> bool {
        self.owner.as_ref().is_some_and(|owner| HoldId::of(owner) == id)
    }
}

#[derive(Debug)]
struct Waiter {
    claim: Arc<Claim>,
    /// `None`: the waiter was told to ask again, and has not done so yet.
    news: Option<oneshot::Sender<Hold>>,
}

impl Waiter {
    fn is_gone(&self) -> bool {
        self.news.as_ref().is_some_and(oneshot::Sender::is_closed)
    }
}

/// The parts of the store that one change of a lock needs, and the notifications that it causes.
pub(super) struct Moment<'a> {
    pub(super) now: BootInstant,
    pub(super) clock: &'a Clock,
    pub(super) token: &'a mut u64,
    pub(super) runs: &'a mut Runs,
    pub(super) news: &'a mut News,
}

impl Moment<'_> {
    /// Whether this claim's run can no longer start, even if the lock becomes free.
    fn is_over(&self, claim: &Claim) -> bool {
        claim.once_per.as_deref().is_some_and(|once| self.runs.is_over(claim, *once, self.clock))
    }
}

/// Notifications that are sent after the table is unlocked, because a waker is foreign code and may ask for a lock of
/// this store at once.
#[derive(Default)]
pub(super) struct News {
    granted: Vec<(oneshot::Sender<Hold>, Hold)>,
    /// Waiters that must ask again, and waiters that are gone. Dropping their senders notifies them.
    ended: Vec<oneshot::Sender<Hold>>,
}

impl News {
    /// Sends all notifications. Returns the holds that no waiter took.
    pub(super) fn tell(self) -> Vec<Hold> {
        self.granted.into_iter().filter_map(|(waiter, hold)| waiter.send(hold).err()).collect()
    }
}

impl Lock {
    pub(super) fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    /// Whether nobody but this owner holds the lock or waits for it. Call `settle` before.
    pub(super) fn is_open_to(&mut self, owner: &Owner) -> bool {
        self.is_idle() || self.held_by(owner).is_some()
    }

    /// One attempt. Call `settle` before: then, if there is a queue, its first waiter cannot get the lock.
    pub(super) fn ask(&mut self, claim: &Arc<Claim>, queue: Queue, moment: &mut Moment<'_>) -> Result<Attempt> {
        if let Some(holder) = self.held_by(&claim.owner) {
            holder.ends = moment.now.after(claim.ttl);
            holder.unconfirmed = false;
            return hold(claim, holder.token, holder.slot, moment.now).map(Attempt::Acquired);
        }
        if self.family().is_some_and(|family| !family.mixes_with(claim.mode)) {
            return Err(Error::new(
                ErrorKind::KeyConflict,
                "the key already holds a lock of another mode, or of another number of permits",
            ));
        }
        if moment.is_over(claim) {
            self.leave(&claim.owner, moment);
            return Ok(Attempt::AlreadyRun);
        }
        if self.waiters.is_empty() && self.admits(claim.mode) {
            return self.grant(claim, moment).map(Attempt::Acquired);
        }
        Ok(Attempt::Contended(self.stand(claim, queue, moment)))
    }

    fn stand(&mut self, claim: &Arc<Claim>, queue: Queue, moment: &mut Moment<'_>) -> Wake {
        let ends = self.holders.iter().map(|holder| holder.ends);
        // A claim that must hold alone needs the last of these leases to end.
        let ends = if claim.mode.is_shared() { ends.min() } else { ends.max() }.unwrap_or(moment.now);
        let left = ends.since(moment.now);
        let held_by = self.holders.first().map(|holder| holder.note.clone());
        if queue == Queue::Leave {
            return Wake::poll().lease_left(left).held_by(held_by);
        }
        let (news, granted) = oneshot::channel();
        match self.waiters.iter_mut().find(|waiter| waiter.claim.owner == claim.owner) {
            // The waiter asks again and keeps its place.
            Some(waiter) => moment.news.ended.extend(waiter.news.replace(news)),
            None => self.waiters.push_back(Waiter { claim: claim.clone(), news: Some(news) }),
        }
        let wake = Wake::on(async move { Ok(granted.await.map_or(Signal::Ask, Signal::Granted)) });
        wake.ask_by(ends).lease_left(left).held_by(held_by)
    }

    /// Ends expired holds, and grants the lock to the first waiters as long as there is room.
    pub(super) fn settle(&mut self, moment: &mut Moment<'_>) {
        self.holders.retain(|holder| holder.ends > moment.now);
        // A place of a waiter that is gone does not count: it would keep locks of other modes out.
        self.waiters.retain(|waiter| !waiter.is_gone());
        while self.waiters.front().is_some_and(|first| self.admits(first.claim.mode)) {
            let Some(Waiter { claim, news }) = self.waiters.pop_front() else { return };
            // A waiter that cannot hear of a grant loses its place. It asks again.
            let Some(news) = news else { continue };
            let granted = (!moment.is_over(&claim)).then(|| self.grant(&claim, moment));
            if let Some(Ok(hold)) = granted {
                self.mark_unconfirmed(&claim.owner);
                moment.news.granted.push((news, hold));
            } else {
                moment.news.ended.push(news);
            }
        }
    }

    /// Whether there is room beside the current holders. This does not look at the queue.
    fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive | Mode::Write => self.holders.is_empty(),
            Mode::Read => self.holders.iter().all(|holder| holder.mode == Mode::Read),
            Mode::Permits(most) => self.holders.len() < usize::try_from(most.get()).unwrap_or(usize::MAX),
        }
    }

    fn grant(&mut self, claim: &Arc<Claim>, moment: &mut Moment<'_>) -> Result<Hold> {
        let token = moment.token.checked_add(1).ok_or_else(exhausted)?;
        *moment.token = token;
        let slot = matches!(claim.mode, Mode::Permits(_)).then(|| self.lowest_free_slot());
        if let Some(once) = claim.once_per.as_deref() {
            moment.runs.start(claim, *once, moment.clock);
            self.notify_over_runs(moment);
        }
        self.holders.push(ActiveHold {
            owner: Some(claim.owner),
            mode: claim.mode,
            slot,
            token,
            ends: moment.now.after(claim.ttl),
            began_ms: moment.clock.wall_ms(),
            note: claim.note.clone(),
            unconfirmed: false,
        });
        hold(claim, token, slot, moment.now)
    }

    fn lowest_free_slot(&self) -> u32 {
        let mut taken = vec![false; self.holders.len() + 1];
        for slot in self.holders.iter().filter_map(|holder| holder.slot) {
            if let Some(taken) = usize::try_from(slot).ok().and_then(|slot| taken.get_mut(slot)) {
                *taken = true;
            }
        }
        taken.iter().position(|taken| !taken).and_then(|slot| u32::try_from(slot).ok()).unwrap_or(u32::MAX)
    }

    /// Prolongs this owner's hold; `None` if it has none.
    pub(super) fn renew(&mut self, claim: &Claim, moment: &Moment<'_>) -> Option<Validity> {
        let holder = self.held_by(&claim.owner)?;
        holder.ends = moment.now.after(claim.ttl);
        holder.unconfirmed = false;
        Some(Validity::new(moment.now, claim.ttl))
    }

    /// Prolongs this owner's hold, and reserves tokens for it.
    pub(super) fn reserve(
        &mut self,
        claim: &Claim,
        reservation: Reservation,
        moment: &mut Moment<'_>,
    ) -> Result<Reserved> {
        if self.held_by(&claim.owner).is_some() && !reservation.even_if_awaited && !self.waiters.is_empty() {
            return Ok(Reserved::Awaited);
        }
        let Some(validity) = self.renew(claim, moment) else { return Ok(Reserved::Lost) };
        let first = *moment.token;
        *moment.token = first.checked_add(u64::from(reservation.tokens)).ok_or_else(exhausted)?;
        Ok(Reserved::Tokens { first: first + 1, validity })
    }

    /// Ends this owner's hold and its place in the queue. Returns whether there was a hold.
    pub(super) fn end(
        &mut self,
        claim: &Claim,
        keep: Option<Duration>,
        run: Option<RunEnd>,
        moment: &mut Moment<'_>,
    ) -> bool {
        self.leave(&claim.owner, moment);
        let Some(holder) = self.held_by(&claim.owner) else { return false };
        if let Some(end) = run {
            moment.runs.end(claim, end, holder.began_ms);
        }
        holder.owner = None;
        holder.ends = moment.now.after(keep.unwrap_or_default());
        if run.is_some() {
            self.notify_over_runs(moment);
        }
        if keep.is_some() {
            // Waiters sleep until the former end of the lease, which may be much later.
            moment.news.ended.extend(self.waiters.iter_mut().filter_map(|waiter| waiter.news.take()));
        }
        true
    }

    /// Notifies waiters at once if their run can no longer start, however long the key stays taken.
    fn notify_over_runs(&mut self, moment: &mut Moment<'_>) {
        let (over, others): (VecDeque<_>, _) =
            std::mem::take(&mut self.waiters).into_iter().partition(|waiter| moment.is_over(&waiter.claim));
        self.waiters = others;
        moment.news.ended.extend(over.into_iter().filter_map(|waiter| waiter.news));
    }

    /// Ends an acquisition whose grant was not used.
    pub(super) fn abandon(&mut self, claim: &Claim, moment: &mut Moment<'_>) {
        moment.runs.give_back(claim);
        self.end(claim, None, None, moment);
    }

    /// Takes back a hold that was handed over to a waiter that is gone, unless its owner has asked for it meanwhile.
    pub(super) fn take_back(&mut self, hold: &Hold, moment: &mut Moment<'_>) {
        let untaken = |holder: &ActiveHold| holder.unconfirmed && holder.owner == Some(hold.claim.owner);
        if self.holders.iter().any(untaken) {
            moment.runs.give_back(&hold.claim);
            self.holders.retain(|holder| !untaken(holder));
        }
    }

    /// Call `settle` before.
    pub(super) fn state(&self, now: BootInstant) -> LockState {
        let state_of = |holder: &ActiveHold| {
            Holder::new(holder.note.clone()).with(|state| {
                state.id = holder.owner.as_ref().map(HoldId::of);
                state.token = Some(holder.token);
                state.lease_left = Some(holder.ends.since(now));
                state.slot = holder.slot;
            })
        };
        LockState::new(self.holders.iter().map(state_of).collect(), u64::try_from(self.waiters.len()).ok())
    }

    /// The notes of the first waiters.
    pub(super) fn waiting(&self, limit: usize) -> Vec<Note> {
        let waiters = self.waiters.iter().filter(|waiter| !waiter.is_gone()).take(limit);
        waiters.map(|waiter| waiter.claim.note.clone()).collect()
    }

    pub(super) fn is_held(&self, now: BootInstant) -> bool {
        self.holders.iter().any(|holder| holder.ends > now)
    }

    /// The end of the lease of the hold with this id.
    pub(super) fn end_of(&self, id: HoldId) -> Option<BootInstant> {
        self.holders.iter().find(|holder| holder.has_id(id)).map(|holder| holder.ends)
    }

    /// Ends the hold with this id as a release does. Call `settle` before. Returns whether there was such a hold.
    pub(super) fn break_hold(&mut self, id: HoldId) -> bool {
        let Some(index) = self.holders.iter().position(|holder| holder.has_id(id)) else { return false };
        self.holders.remove(index);
        true
    }

    fn family(&self) -> Option<Mode> {
        let held = self.holders.first().map(|holder| holder.mode);
        held.or_else(|| self.waiters.front().map(|waiter| waiter.claim.mode))
    }

    fn held_by(&mut self, owner: &Owner) -> Option<&mut ActiveHold> {
        self.holders.iter_mut().find(|holder| holder.owner.as_ref() == Some(owner))
    }

    fn mark_unconfirmed(&mut self, owner: &Owner) {
        if let Some(holder) = self.held_by(owner) {
            holder.unconfirmed = true;
        }
    }

    fn leave(&mut self, owner: &Owner, moment: &mut Moment<'_>) {
        if let Some(index) = self.waiters.iter().position(|waiter| waiter.claim.owner == *owner) {
            moment.news.ended.extend(self.waiters.remove(index).and_then(|waiter| waiter.news));
        }
    }
}

fn exhausted() -> Error {
    Error::new(ErrorKind::FenceExhausted, "the fencing counter is used up")
}

fn hold(claim: &Arc<Claim>, token: u64, slot: Option<u32>, from: BootInstant) -> Result<Hold> {
    let hold = Hold::new(claim.clone(), token, Validity::new(from, claim.ttl))?;
    Ok(match slot {
        Some(slot) => hold.with_slot(slot),
        None => hold,
    })
}
