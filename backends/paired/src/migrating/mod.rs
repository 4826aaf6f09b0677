//! A migration: an old and a new store, while a fleet moves from one to the other.

mod backend;
mod powers;

use std::fmt;
use std::sync::Arc;

use dlock_contract::{Backend, Expiry, Profile, Result};
use dlock_store::Clock;

use crate::in_order::{InOrder, PairKind, common};

/// A store that takes each lock in an old store and then in a new one. A lock is held while both stores hold it.
///
/// It excludes processes that use only the old store, and processes that use only the new one. So a fleet moves in two
/// rolling deployments: from the old store to this one, and from this one to the new store.
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

/// The store from which the fencing token and a permit's slot come.
///
/// Each store counts its own tokens and slots: tokens of two stores cannot be compared, and a slot of one may be taken in the
/// other. So all processes that run at the same time must use one store's: the old store's while any process uses only the old
/// store, and the new store's while any process uses only the new one.
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

    /// Tries both stores with a lock that nobody else wants, to see that they are not one store: one server
    /// has many URLs. A store that does not answer is not judged.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid) if both are one store.
    pub async fn check_two_stores(&self) -> Result<()> {
        self.stores.check_two_stores(self.profile.ttl).await
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
    /// The store from which the fencing token and a permit's slot come. [`Numbers::Old`] by default.
    pub fn numbers(mut self, numbers: Numbers) -> Self {
        self.numbers = numbers;
        self
    }

    /// The clock of the stores, if it is not the machine's; for tests. The system clock by default.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = clock.clone();
        self
    }

    /// Leaves both stores open when this one is closed, because their owner closes them. By default both are closed.
    pub fn keep_members_open(mut self) -> Self {
        self.closes_members = false;
        self
    }

    /// Makes the store. Neither member is asked: [`Migrating::check_two_stores`] does that.
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
        let kind = PairKind::Equals { numbers_of_second: self.numbers == Numbers::New };
        let stores = InOrder::new([self.old, self.new], &self.clock, kind, self.closes_members)?;
        Ok(Migrating { stores: Arc::new(stores), profile })
    }
}

/// A hold ends when it ends in one of the stores. If a session holds it in one store, it may end before the ttl.
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
