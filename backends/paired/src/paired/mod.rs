//! A quick gate in front of an authority.

mod backend;
mod powers;

use std::fmt;
use std::sync::Arc;

use dlock_contract::{Backend, Profile, Result};
use dlock_store::Clock;

use crate::in_order::{InOrder, PairKind, common};

/// A store that takes each lock in a quick gate and then in an authority, which decides.
///
/// ```no_run
/// # async fn example(gate: dlock_contract::Result<std::sync::Arc<dyn dlock_contract::Backend>>, rows: std::sync::Arc<dyn dlock_contract::Backend>) -> dlock_contract::Result<()> {
/// # let gate = gate?;
/// use dlock_paired::{GateDown, Paired};
///
/// let pair = Paired::builder(gate, rows).gate_down(GateDown::Authority).build()?;
/// # drop(pair);
/// # Ok(())
/// # }
/// ```
pub struct Paired {
    stores: Arc<InOrder>,
    profile: Profile,
}

/// The behaviour of a call while the gate is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateDown {
    /// It fails with the gate's error.
    #[default]
    Fail,
    /// It asks the authority alone, and waits there. `fair` is refused with this setting, because the order between callers
    /// from the gate and callers that bypassed it is unknown.
    Authority,
}

impl Paired {
    /// A pair of a gate and an authority.
    pub fn builder(gate: Arc<dyn Backend>, authority: Arc<dyn Backend>) -> PairedBuilder {
        PairedBuilder { gate, authority, gate_down: GateDown::Fail, clock: Clock::system(), closes_members: true }
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

/// Settings of a [`Paired`].
#[must_use]
pub struct PairedBuilder {
    gate: Arc<dyn Backend>,
    authority: Arc<dyn Backend>,
    gate_down: GateDown,
    clock: Clock,
    closes_members: bool,
}

impl PairedBuilder {
    /// The behaviour of a call while the gate is down. [`GateDown::Fail`] by default.
    pub fn gate_down(mut self, gate_down: GateDown) -> Self {
        self.gate_down = gate_down;
        self
    }

    /// The clock of the stores, if it is not the machine's; for tests. The system clock by default.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = clock.clone();
        self
    }

    /// Leaves both stores open when the pair is closed, because their owner closes them. By default both are closed.
    pub fn keep_members_open(mut self) -> Self {
        self.closes_members = false;
        self
    }

    /// Makes the pair. No store is asked: [`Paired::check_two_stores`] does that.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid) if both are the same store, if no ttl fits
    /// both, if they differ in which keys are one lock, or if a hold in one of them is a transaction (row locks).
    pub fn build(self) -> Result<Paired> {
        let (gate, authority) = (self.gate.profile().clone(), self.authority.profile().clone());
        let profile = common("paired", &gate, &authority)?.with(|pair| {
            pair.expiry = authority.expiry;
            pair.fencing = authority.fencing;
            pair.durability = authority.durability;
            pair.fair = gate.fair && self.gate_down == GateDown::Fail;
        });
        let stores = [self.gate, self.authority];
        let mut stores = InOrder::new(stores, &self.clock, PairKind::Gate, self.closes_members)?;
        if self.gate_down == GateDown::Authority {
            stores = stores.with_bypass();
        }
        Ok(Paired { stores: Arc::new(stores), profile })
    }
}

impl fmt::Debug for Paired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [gate, authority] = [&self.stores.first, &self.stores.second].map(|store| store.profile().kind);
        f.debug_struct("Paired").field("gate", &gate).field("authority", &authority).finish_non_exhaustive()
    }
}
