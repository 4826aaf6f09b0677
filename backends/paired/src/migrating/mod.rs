//! An old and a new store, while a fleet moves from one to the other.

mod backend;
mod powers;

use std::fmt;
use std::sync::Arc;

use dlock_contract::{Backend, Clock, Expiry, Profile, Result};

use crate::in_order::{InOrder, Kind, common};

/// A store that takes each lock in an old store and then in a new one, and holds it while it has both.
///
/// Processes that know the old store alone, and processes that know the new one alone, are kept out by it. So a fleet moves
/// in two rolling deployments: from the old store to this one, and from this one to the new store.
///
/// ```no_run
/// # fn example(old: std::sync::Arc<dyn dlock_contract::Backend>, new: std::sync::Arc<dyn dlock_contract::Backend>) -> dlock_contract::Result<()> {
/// let both = dlock_paired::Migrating::builder(old, new).build()?;
/// # drop(both);
/// # Ok(())
/// # }
/// ```
pub struct Migrating {
    stores: Arc<InOrder>,
    profile: Profile,
}

/// From which store the fencing token and the number of a permit come.
///
/// Each store counts by itself, and two counts cannot be compared. So all processes that run at a time must take them from
/// one store: from the old one while a process knows that one alone, and from the new one while a process knows that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Numbers {
    /// From the old store.
    #[default]
    Old,
    /// From the new store.
    New,
}

impl Migrating {
    /// A migration from an old store to a new one.
    pub fn builder(old: Arc<dyn Backend>, new: Arc<dyn Backend>) -> MigratingBuilder {
        MigratingBuilder { old, new, numbers: Numbers::Old, clock: Clock::system(), closes_members: true }
    }
}

/// Settings of a [`Migrating`].
#[must_use]
pub struct MigratingBuilder {
    old: Arc<dyn Backend>,
    new: Arc<dyn Backend>,
    numbers: Numbers,
    clock: Clock,
    closes_members: bool,
}

impl MigratingBuilder {
    /// From which store the fencing token and the number of a permit come. [`Numbers::Old`] unless set.
    pub fn numbers(mut self, numbers: Numbers) -> Self {
        self.numbers = numbers;
        self
    }

    /// The clock of the stores, where it is not the machine's; for tests.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = clock.clone();
        self
    }

    /// Leaves both stores open when this one is closed, because somebody else closes them: they are installed under names
    /// of their own.
    pub fn keep_members_open(mut self) -> Self {
        self.closes_members = false;
        self
    }

    /// Makes the store. Neither member is asked.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid) if both are the same store, if no ttl fits
    /// both, if they differ in which keys are one lock, or if a hold in one of them is a transaction (row locks).
    pub fn build(self) -> Result<Migrating> {
        let (old, new) = (self.old.profile().clone(), self.new.profile().clone());
        let profile = common("migrating", &old, &new)?.with(|both| {
            both.expiry = shorter(old.expiry, new.expiry);
            both.fencing = if self.numbers == Numbers::Old { old.fencing } else { new.fencing };
            both.durability = old.durability.min(new.durability);
            both.fair = old.fair && new.fair;
        });
        let kind = Kind::Equals { numbers_of_second: self.numbers == Numbers::New };
        let stores = InOrder::new([self.old, self.new], &self.clock, kind, self.closes_members)?;
        Ok(Migrating { stores: Arc::new(stores), profile })
    }
}

/// A hold ends with the first of its parts. If one of them is a session, it may end before the ttl.
fn shorter(old: Expiry, new: Expiry) -> Expiry {
    match (old, new) {
        (Expiry::Session { told: one }, Expiry::Session { told: other }) => Expiry::Session { told: one.max(other) },
        (Expiry::Session { told }, _) | (_, Expiry::Session { told }) => Expiry::Session { told },
        _ => Expiry::Lease,
    }
}

impl fmt::Debug for Migrating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [old, new] = [&self.stores.first, &self.stores.second].map(|store| store.profile().kind);
        f.debug_struct("Migrating").field("old", &old).field("new", &new).finish_non_exhaustive()
    }
}
