//! The holds that the monitor of a store watches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dlock_contract::{BootInstant, Owner};
use tokio::sync::Notify;

/// The holds of a store, by their owners. It does not keep them alive: a hold that is dropped is freed at once.
pub(crate) struct WatchedHolds<H> {
    table: Mutex<Table<H>>,
    /// There is a hold again.
    wake: Notify,
}

struct Table<H> {
    by_owner: HashMap<Owner, Weak<H>>,
    /// The monitor waits for a hold.
    is_idle: bool,
}

impl<H> WatchedHolds<H> {
    pub(crate) fn new() -> Self {
        Self { table: Mutex::new(Table { by_owner: HashMap::new(), is_idle: false }), wake: Notify::new() }
    }

    /// Watches the hold from now on. If its owner asks again, it gets this hold.
    pub(crate) fn add(&self, owner: Owner, held: &Arc<H>) {
        let mut table = self.table();
        // Dropped holds are removed now and then.
        if table.by_owner.len() == table.by_owner.capacity() {
            table.by_owner.retain(|_, held| held.strong_count() > 0);
        }
        table.by_owner.insert(owner, Arc::downgrade(held));
        let is_idle = std::mem::take(&mut table.is_idle);
        drop(table);
        if is_idle {
            self.wake.notify_one();
        }
    }

    /// Unless the owner has another hold by now.
    pub(crate) fn remove(&self, owner: &Owner, held: &H) {
        let mut table = self.table();
        if table.by_owner.get(owner).is_some_and(|known| std::ptr::eq(known.as_ptr(), held)) {
            table.by_owner.remove(owner);
        }
    }

    pub(crate) fn held_by(&self, owner: &Owner) -> Option<Arc<H>> {
        self.table().by_owner.get(owner)?.upgrade()
    }

    /// The living holds that are `due`.
    pub(crate) fn find(&self, due: impl Fn(&H) -> bool) -> Vec<Arc<H>> {
        self.known().iter().filter_map(Weak::upgrade).filter(|held| due(held)).collect()
    }

    /// When the first of the living holds must be looked at; `None` if no hold needs a look. Then `wait` ends with the next
    /// hold.
    pub(crate) fn next_look(&self, of: impl Fn(&H) -> Option<BootInstant>) -> Option<BootInstant> {
        // First, so that a hold that comes meanwhile ends the wait that follows.
        self.table().is_idle = true;
        let next = self.known().iter().filter_map(Weak::upgrade).filter_map(|held| of(&held)).min();
        if next.is_some() {
            self.table().is_idle = false;
        }
        next
    }

    /// A hold that is upgraded may be dropped here for the last time, and its drop may add another one. So not while the table is
    /// locked.
    fn known(&self) -> Vec<Weak<H>> {
        self.table().by_owner.values().cloned().collect()
    }

    /// Waits for a hold.
    pub(crate) async fn wait(&self) {
        self.wake.notified().await;
    }

    fn table(&self) -> MutexGuard<'_, Table<H>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

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
                all.add(Owner::fresh().unwrap(), &next);
            }
        }
    }

    fn ends_in(look: fn(&WatchedHolds<Ends>, &Mutex<Option<Arc<Ends>>>)) {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let all = Arc::new(WatchedHolds::new());
            let hold = Arc::new(Ends { all: Arc::downgrade(&all), adds: true });
            all.add(Owner::fresh().unwrap(), &hold);
            look(&all, &Mutex::new(Some(hold)));
            tell.send(()).unwrap();
        });
        told.recv_timeout(Duration::from_secs(30)).expect("the thread waits for itself");
    }

    #[test]
    fn a_hold_that_ends_while_it_is_looked_at_may_add_another_one() {
        ends_in(|all, hold| assert_eq!(all.find(|_| hold.lock().unwrap().take().is_none()).len(), 0));
        ends_in(|all, hold| {
            let next = all.next_look(|_| hold.lock().unwrap().take().is_none().then_some(BootInstant::NEVER));
            assert_eq!(next, None);
        });
    }
}
