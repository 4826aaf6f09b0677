//! Renews what is held, and declares lost what cannot be renewed in time.
//!
//! One timer for a registry: all that is due for a store goes into one request. A renewal that fails is tried again
//! until the deadline; the deadline alone ends belief (Redisson's watchdog stopped for ever at one failure, #775).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::engine::background;
use dlock_contract::{BootInstant, Clock, Error, ErrorKind, LossCause, Result, Standing};
use futures::FutureExt;
use futures::future::join_all;
use tokio::sync::Notify;

use crate::broken::cause_of_loss;
use crate::observe::Event;
use crate::release;
use crate::tenure::{Pace, Tenure};

/// The holds of one registry, by when something is due.
#[derive(Debug)]
pub(crate) struct Watchdog {
    clock: Clock,
    table: Mutex<Table>,
    /// Something is due earlier than the sleep in progress.
    earlier: Notify,
    started: AtomicBool,
    stopped: AtomicBool,
    dead: AtomicBool,
}

#[derive(Debug)]
struct Table {
    /// By the instant, and of one instant by the address.
    due: BTreeMap<(BootInstant, usize), Arc<Tenure>>,
    /// What was taken out of `due` and is being put back.
    attended: Vec<Arc<Tenure>>,
    sleeping_until: BootInstant,
}

/// Renewals in one request at most: a request of bounded size delays no other one for long.
const BATCH: usize = 256;

impl Watchdog {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            table: Mutex::new(Table { due: BTreeMap::new(), attended: Vec::new(), sleeping_until: BootInstant::NEVER }),
            earlier: Notify::new(),
            started: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            dead: AtomicBool::new(false),
        }
    }

    /// Takes a hold over.
    ///
    /// # Errors
    /// When there is no thread to renew on: then the hold must not be used.
    pub(crate) fn add(self: &Arc<Self>, tenure: &Arc<Tenure>) -> Result<()> {
        if self.dead.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Internal, "dlock's watchdog has died; nothing could be renewed"));
        }
        if !self.started.load(Ordering::Acquire) && !self.started.swap(true, Ordering::AcqRel) {
            let watchdog = self.clone();
            background()?.spawn(async move {
                if AssertUnwindSafe(watchdog.run()).catch_unwind().await.is_err() {
                    watchdog.dead.store(true, Ordering::Release);
                }
            });
        }
        if let Some(session_end) = &tenure.hold.session_end {
            let tenure = Arc::downgrade(tenure);
            session_end.listen(move || {
                if let Some(tenure) = tenure.upgrade() {
                    tenure.lose(LossCause::Store);
                }
            });
        }
        self.schedule(tenure);
        Ok(())
    }

    /// Lets go of a hold that has ended.
    pub(crate) fn remove(&self, tenure: &Tenure) {
        let mut table = self.lock();
        let due = pace(tenure).due.take();
        let removed = due.and_then(|due| table.due.remove(&(due, address(tenure))));
        drop(table);
        drop(removed);
    }

    /// Declares a hold lost, once.
    pub(crate) fn lose(&self, tenure: &Arc<Tenure>, cause: LossCause) {
        if !tenure.mark_lost(cause) {
            return;
        }
        let held = self.clock.now().since(tenure.since);
        tenure.shared.events.send(&tenure.label, Event::Lost { cause, held });
        if tenure.store.backend.capabilities().expires_alone {
            self.remove(tenure);
            // The loser's guard may live on for long: its neighbours need not wait for it, no more than strangers do.
            tenure.pass_turn();
        } else {
            // The store would keep the lock for as long as the lease's other holds live.
            release::later(tenure.clone());
        }
    }

    /// All holds at this moment.
    pub(crate) fn holds(&self) -> Vec<Arc<Tenure>> {
        let table = self.lock();
        let mut holds: Vec<_> = table.due.values().chain(&table.attended).cloned().collect();
        drop(table);
        holds.sort_by_key(Arc::as_ptr);
        holds.dedup_by_key(|tenure| Arc::as_ptr(tenure));
        holds.retain(|tenure| tenure.is_held());
        holds
    }

    /// Ends the watchdog of a registry that nobody has any more.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.earlier.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a hold where its next duty is.
    fn schedule(&self, tenure: &Arc<Tenure>) {
        let mut table = self.lock();
        let mut pace = pace(tenure);
        if let Some(due) = pace.due.take() {
            table.due.remove(&(due, address(tenure)));
        }
        if !tenure.is_held() {
            return;
        }
        let due = next_duty(tenure, &pace);
        pace.due = Some(due);
        table.due.insert((due, address(tenure)), tenure.clone());
        if due < table.sleeping_until {
            self.earlier.notify_one();
        }
    }

    async fn run(&self) {
        while !self.stopped.load(Ordering::Acquire) {
            let (due, next) = self.take_due();
            self.attend(due);
            let attended = std::mem::take(&mut self.lock().attended);
            // Outside of the lock: the last of a hold passes its turn on.
            drop(attended);
            tokio::select! {
                () = self.clock.sleep_until(next) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    fn take_due(&self) -> (Vec<Arc<Tenure>>, BootInstant) {
        let now = self.clock.now();
        let mut table = self.lock();
        let later = table.due.split_off(&(now, usize::MAX));
        let due: Vec<_> = std::mem::replace(&mut table.due, later).into_values().collect();
        for tenure in &due {
            pace(tenure).due = None;
        }
        let next = table.due.first_key_value().map_or(BootInstant::NEVER, |(key, _)| key.0);
        table.attended.clone_from(&due);
        table.sleeping_until = next;
        (due, next)
    }

    /// Does what is due for each hold; renewals of one store go together.
    fn attend(&self, due: Vec<Arc<Tenure>>) {
        let now = self.clock.now();
        let mut renewals: BTreeMap<(usize, Option<u64>), Vec<Arc<Tenure>>> = BTreeMap::new();
        for tenure in due {
            if let Some(cause) = tenure.overdue(now) {
                self.lose(&tenure, cause);
                continue;
            }
            let mut pace = pace(&tenure);
            // In here: whoever has ended it looks here whether a renewal is under way.
            if !tenure.is_held() {
                continue;
            }
            if !pace.near_told && now >= tenure.near_expiry() {
                pace.near_told = true;
                let remaining = tenure.deadline().since(now);
                tenure.shared.events.send(&tenure.label, Event::NearExpiry { remaining });
            }
            if pace.next_renewal <= now && !pace.renewing {
                pace.renewing = true;
                let store = Arc::as_ptr(&tenure.store) as usize;
                renewals.entry((store, tenure.hold.group)).or_default().push(tenure.clone());
            }
            drop(pace);
            self.schedule(&tenure);
        }
        // Groups of one store side by side, so that a batch cuts as few of them as possible.
        let mut batch: Vec<Arc<Tenure>> = Vec::new();
        for (_, tenures) in renewals {
            for tenure in tenures {
                if batch.first().is_some_and(|first| !Arc::ptr_eq(&first.store, &tenure.store)) || batch.len() >= BATCH
                {
                    self.renew(std::mem::take(&mut batch));
                }
                batch.push(tenure);
            }
        }
        if !batch.is_empty() {
            self.renew(batch);
        }
    }

    /// Renews a batch in a task of its own, so that a slow store delays no other.
    fn renew(&self, batch: Vec<Arc<Tenure>>) {
        let Ok(background) = background() else { return };
        let clock = self.clock.clone();
        background.spawn(renew(clock, batch));
    }
}

async fn renew(clock: Clock, mut batch: Vec<Arc<Tenure>>) {
    batch.sort_by_key(|tenure| Reverse(bound_of(tenure)));
    let Some(first) = batch.first() else { return };
    let holds: Vec<_> = batch.iter().map(|tenure| &tenure.hold).collect();
    // Called inside: a backend may also panic before it gives its future.
    let mut request = pin!(AssertUnwindSafe(async { first.store.backend.renew(&holds).await }).catch_unwind());
    let sent = clock.now();
    // Each hold waits as long as its own ttl allows: a short one cuts off the answers of no other.
    let mut waiting = &batch[..];
    while let Some(shortest) = waiting.last() {
        let bound = bound_of(shortest);
        let Some(answered) = clock.timeout_at(sent.after(bound), request.as_mut()).await else {
            let (longer, over) = waiting.split_at(waiting.partition_point(|tenure| bound_of(tenure) > bound));
            waiting = longer;
            for tenure in over {
                settle(&clock, tenure, Err(Error::outage(format!("the store did not answer within {bound:?}"))));
            }
            continue;
        };
        let answers = match answered {
            Ok(answers) if answers.len() == batch.len() => answers,
            Ok(_) => fail_all(&batch, || Error::new(ErrorKind::Protocol, "the backend did not answer for each hold")),
            Err(_) => fail_all(&batch, || Error::new(ErrorKind::Internal, "the backend panicked")),
        };
        note(first, &answers, clock.now());
        let (lost, others): (Vec<_>, Vec<_>) =
            waiting.iter().zip(answers).partition(|(_, answer)| matches!(answer, Ok(Standing::Lost)));
        others.into_iter().for_each(|(tenure, answer)| settle(&clock, tenure, answer));
        let lose = async |tenure: &Arc<Tenure>| tenure.shared.watchdog.lose(tenure, cause_of_loss(tenure).await);
        join_all(lost.into_iter().map(|(tenure, _)| lose(tenure))).await;
        return;
    }
    // Nobody counts on it any more, and the next renewal may be under way. But the store may have done it all the same.
    let Some(last) = batch.iter().map(|tenure| tenure.deadline()).max() else { return };
    if let Some(Ok(answers)) = clock.timeout_at(last, request).await
        && answers.len() == batch.len()
    {
        batch.iter().zip(answers).for_each(|(tenure, answer)| heard_late(tenure, answer));
    }
}

/// A late answer counts for what it says: that the hold is over, or that it ends later than was believed. When to ask next
/// is for the renewal that came after it.
fn heard_late(tenure: &Arc<Tenure>, answer: Result<Standing>) {
    match answer {
        Ok(Standing::Renewed(validity)) => {
            tenure.believe(validity);
            tenure.shared.watchdog.schedule(tenure);
        }
        Ok(Standing::Lost) => tenure.shared.watchdog.lose(tenure, LossCause::Store),
        Err(_) => {}
    }
}

/// One request is one piece of news about the store.
fn note(first: &Tenure, answers: &[Result<Standing>], now: BootInstant) {
    let store = &first.store;
    match answers.iter().find_map(|answer| answer.as_ref().err()) {
        Some(error) if answers.iter().all(Result::is_err) => store.health.failed(&store.name, error, now),
        _ => store.health.answered(&store.name),
    }
}

/// A third of the ttl, also where it is renewed more often: of several servers, a slow one has its time.
fn bound_of(tenure: &Tenure) -> Duration {
    (tenure.hold.claim.ttl / 3).clamp(Duration::from_millis(50), Duration::from_secs(5))
}

/// One answer is missing for all: unknown, which is not lost.
fn fail_all(batch: &[Arc<Tenure>], error: impl Fn() -> Error) -> Vec<Result<Standing>> {
    batch.iter().map(|_| Err(error())).collect()
}

pub(crate) fn settle(clock: &Clock, tenure: &Arc<Tenure>, answer: Result<Standing>) {
    let watchdog = &tenure.shared.watchdog;
    let now = clock.now();
    let cadence = tenure.cadence.unwrap_or(Duration::MAX);
    let next = match answer {
        Ok(Standing::Renewed(validity)) => {
            tenure.believe(validity);
            let pause = cadence.min(validity.granted / 3 * 2);
            // Up to a tenth early: holds that were taken together shall not be renewed together for ever.
            let next = together(validity.from.after(pause.mul_f64(0.9 + fastrand::f64() / 10.0)), pause);
            // An answer that took long, or that says so, is no reason to ask without a pause.
            next.max(now.after((pause / 4).min(Duration::from_millis(20))))
        }
        Ok(Standing::Lost) => return watchdog.lose(tenure, LossCause::Store),
        Err(error) => {
            let remaining = tenure.deadline().since(now);
            let reason = error.to_string().into();
            tenure.shared.events.send(&tenure.label, Event::RenewalFailed { reason, remaining });
            let pause = cadence.min(remaining / 4).max(Duration::from_millis(20));
            now.after(pause.mul_f64(0.5 + fastrand::f64() / 2.0))
        }
    };
    {
        let mut pace = pace(tenure);
        pace.next_renewal = if tenure.cadence.is_some() { next } else { BootInstant::NEVER };
        pace.renewing = false;
        pace.near_told &= now >= tenure.near_expiry();
    }
    watchdog.schedule(tenure);
}

/// Moves a renewal up to the tick before it, so that one request serves all who are due in that tick. Ticks are powers
/// of two, an eighth of the pause at most: holds of different cadences share them.
pub(crate) fn together(due: BootInstant, pause: Duration) -> BootInstant {
    let most = u64::try_from(pause.as_nanos() / 8).unwrap_or(u64::MAX).max(1);
    let tick = 1 << most.ilog2();
    BootInstant::from_nanos(due.as_nanos() / tick * tick)
}

fn address(tenure: &Tenure) -> usize {
    std::ptr::from_ref(tenure) as usize
}

fn pace(tenure: &Tenure) -> MutexGuard<'_, Pace> {
    tenure.pace.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next_duty(tenure: &Tenure, pace: &Pace) -> BootInstant {
    let renewal = if pace.renewing { BootInstant::NEVER } else { pace.next_renewal };
    let near = if pace.near_told { BootInstant::NEVER } else { tenure.near_expiry() };
    renewal.min(near).min(tenure.deadline())
}

#[cfg(test)]
mod tests;
