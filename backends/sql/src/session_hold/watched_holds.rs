//! The holds that the monitor of a store watches.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dlock_contract::{BootInstant, Owner};
use dlock_store::Clock;
use tokio::sync::Notify;

/// The longest time between two looks at a hold.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// A younger hold is not looked at. Most holds end before this age, and so cost nothing.
const MIN_HOLD_AGE: Duration = Duration::from_millis(100);

/// The holds of a store, by their owners. It does not keep them alive: a hold that is dropped is freed at once.
pub(crate) struct WatchedHolds<H> {
    table: Mutex<Table<H>>,
    /// There is a hold again.
    wake: Notify,
}

struct Table<H> {
    by_owner: HashMap<Owner, Arc<WatchedHold<H>>>,
    /// The monitor waits for a hold.
    is_idle: bool,
}

struct WatchedHold<H> {
    held: Weak<H>,
    since: BootInstant,
    looked: AtomicU64,
}

impl<H> WatchedHolds<H> {
    pub(crate) fn new() -> Self {
        Self { table: Mutex::new(Table { by_owner: HashMap::new(), is_idle: false }), wake: Notify::new() }
    }

    /// Watches the hold from now on. If its owner asks again, it gets this hold.
    pub(crate) fn add(&self, owner: Owner, held: &Arc<H>, since: BootInstant) {
        let mut table = self.table();
        // Dropped holds are removed now and then.
        if table.by_owner.len() == table.by_owner.capacity() {
            table.by_owner.retain(|_, watched| watched.held.strong_count() > 0);
        }
        let watched = WatchedHold { held: Arc::downgrade(held), since, looked: AtomicU64::new(since.as_nanos()) };
        table.by_owner.insert(owner, Arc::new(watched));
        let is_idle = std::mem::take(&mut table.is_idle);
        drop(table);
        if is_idle {
            self.wake.notify_one();
        }
    }

    /// Unless the owner has another hold by now.
    pub(crate) fn remove(&self, owner: &Owner, held: &H) {
        let mut table = self.table();
        if table.by_owner.get(owner).is_some_and(|known| std::ptr::eq(known.held.as_ptr(), held)) {
            table.by_owner.remove(owner);
        }
    }

    pub(crate) fn held_by(&self, owner: &Owner) -> Option<Arc<H>> {
        self.table().by_owner.get(owner)?.held.upgrade()
    }

    /// Has the holds looked at as they become due, for as long as the store lives. `interval` is the longest time between two looks
    /// at a hold, if the hold needs one.
    pub(crate) async fn watch<F>(
        &self,
        clock: &Clock,
        interval: impl Fn(&H) -> Option<Duration>,
        look_around: impl Fn() -> F,
    ) where
        F: Future<Output = ()>,
    {
        loop {
            match self.next_look(&interval) {
                Some(at) => {
                    clock.sleep_until(at).await;
                    look_around().await;
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// The living holds that are old enough, and need a look. Notes that they are looked at now.
    pub(crate) fn take_due(&self, now: BootInstant, needs_look: impl Fn(&H) -> bool) -> Vec<Arc<H>> {
        let old = self.known().into_iter().filter(|watched| watched.since.after(MIN_HOLD_AGE) <= now);
        let due = old.filter_map(|watched| {
            let held = watched.held.upgrade().filter(|held| needs_look(held))?;
            watched.looked.store(now.as_nanos(), Ordering::Release);
            Some(held)
        });
        due.collect()
    }

    /// When the first of the living holds must be looked at; `None` if no hold needs a look. Then `wake` wakes with the next
    /// hold.
    fn next_look(&self, interval: impl Fn(&H) -> Option<Duration>) -> Option<BootInstant> {
        // First, so that a hold that comes meanwhile ends the wait that follows.
        self.table().is_idle = true;
        let known = self.known();
        let looks = known.iter().filter_map(|watched| {
            let looked = BootInstant::from_nanos(watched.looked.load(Ordering::Acquire));
            Some(looked.after(interval(&*watched.held.upgrade()?)?))
        });
        let next = looks.min();
        if next.is_some() {
            self.table().is_idle = false;
        }
        next
    }

    /// A copy of the table's holds. Callers must upgrade them outside of the table's lock: an upgraded hold may be the last
    /// reference, and its drop may add another hold to the table.
    fn known(&self) -> Vec<Arc<WatchedHold<H>>> {
        self.table().by_owner.values().cloned().collect()
    }

    fn table(&self) -> MutexGuard<'_, Table<H>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Its end adds another hold, as a task of the client library may that is polled then.
    struct Ends {
        all: Weak<WatchedHolds<Ends>>,
        adds: bool,
    }

    impl Drop for Ends {
        fn drop(&mut self) {
            if let Some(all) = self.all.upgrade().filter(|_| self.adds) {
                let next = Arc::new(Self { all: Arc::downgrade(&all), adds: false });
                all.add(Owner::fresh().unwrap(), &next, BootInstant::from_nanos(0));
            }
        }
    }

    fn ends_in(look: fn(&WatchedHolds<Ends>, &Mutex<Option<Arc<Ends>>>)) {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let all = Arc::new(WatchedHolds::new());
            let hold = Arc::new(Ends { all: Arc::downgrade(&all), adds: true });
            all.add(Owner::fresh().unwrap(), &hold, BootInstant::from_nanos(0));
            look(&all, &Mutex::new(Some(hold)));
            tell.send(()).unwrap();
        });
        told.recv_timeout(Duration::from_secs(30)).expect("the thread waits for itself");
    }

    #[test]
    fn a_hold_that_ends_while_it_is_looked_at_may_add_another_one() {
        ends_in(|all, hold| {
            assert_eq!(all.take_due(BootInstant::NEVER, |_| hold.lock().unwrap().take().is_none()).len(), 0)
        });
        ends_in(|all, hold| {
            let next = all.next_look(|_| hold.lock().unwrap().take().is_none().then_some(LOOK_INTERVAL));
            assert_eq!(next, None);
        });
    }
}
