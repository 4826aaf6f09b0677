//! The task that attends to the holds of a registry when a duty of theirs is due.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dlock_contract::{BootInstant, Error, ErrorKind, Result};
use futures::FutureExt;

use crate::events::event::Event;
use crate::hold::release;
use crate::hold::renewal::{BATCH_LIMIT, renew};
use crate::hold::tenure::{RenewalSchedule, Tenure};
use crate::sync::{background, planted};

impl RenewalSchedule {
    /// Takes a hold over.
    ///
    /// # Errors
    /// If there is no thread to renew on. Then the hold must not be used.
    pub(crate) fn add(self: &Arc<Self>, tenure: &Arc<Tenure>) -> Result<()> {
        if self.dead.load(Ordering::Acquire) {
            return Err(Error::new(
                ErrorKind::Internal,
                "dlock's renewal task has ended, so no lock can be renewed; restart the process",
            ));
        }
        if !self.started.load(Ordering::Acquire) && !self.started.swap(true, Ordering::AcqRel) {
            let schedule = self.clone();
            background()?.spawn(async move {
                if AssertUnwindSafe(schedule.run()).catch_unwind().await.is_err() {
                    schedule.dead.store(true, Ordering::Release);
                }
            });
        }
        self.watch_session(tenure)?;
        self.put(tenure);
        Ok(())
    }

    async fn run(&self) {
        while !self.stopped.load(Ordering::Acquire) {
            let (due, next) = self.take_due();
            self.attend(due);
            let attended = std::mem::take(&mut self.lock().attended);
            // Outside of the lock: dropping the last reference to a hold passes its turn on.
            drop(attended);
            if planted("the schedule does not sleep") {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.clock.sleep_until(next) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    /// Does the due work of each hold. Renewals of one store go into one request.
    pub(super) fn attend(&self, due: Vec<Arc<Tenure>>) {
        let now = self.clock.now();
        let mut renewals: BTreeMap<(usize, Option<u64>), Vec<Arc<Tenure>>> = BTreeMap::new();
        for tenure in due {
            if let Some(cause) = tenure.overdue(now) {
                tenure.lose(cause);
                continue;
            }
            let early = planted("a renewal begins after the look of a release").then(|| tenure.is_held());
            let mut duties = tenure.duties();
            // Checked under this mutex, because a release checks under it whether a renewal is under way.
            if !early.unwrap_or_else(|| tenure.is_held()) {
                let release_ends = std::mem::replace(&mut duties.release_ends, BootInstant::NEVER);
                drop(duties);
                if release_ends <= now {
                    release::unpolled(tenure);
                }
                continue;
            }
            if !duties.near_told && now >= tenure.near_expiry() {
                duties.near_told = true;
                let remaining = tenure.valid_until().since(now);
                tenure.shared.events.send(&tenure.label, Event::NearExpiry { remaining });
            }
            if duties.next_renewal <= now && duties.renewals == 0 {
                duties.renewals = 1;
                let store = Arc::as_ptr(&tenure.store) as usize;
                renewals.entry((store, tenure.hold.group())).or_default().push(tenure.clone());
            }
            drop(duties);
            if !planted("a hold leaves the schedule early") {
                self.put(&tenure);
            }
        }
        // Groups of one store are side by side, so that few groups are cut by the end of a batch.
        let mut batch: Vec<Arc<Tenure>> = Vec::new();
        for (_, tenures) in renewals {
            for tenure in tenures {
                if batch.first().is_some_and(|first| !Arc::ptr_eq(&first.store, &tenure.store))
                    || batch.len() >= BATCH_LIMIT
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
        if planted("no renewal is sent") {
            return;
        }
        let Ok(background) = background() else { return };
        let clock = self.clock.clone();
        background.spawn(renew(clock, batch));
    }
}
