//! When a hold is due: its next renewal, and the warning before the end of its validity.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::BootInstant;

/// A failed renewal: the words of the error, and the server's own code.
#[derive(Clone, Debug)]
pub(crate) struct FailedRenewal {
    pub(crate) reason: Arc<str>,
    pub(crate) code: Option<Arc<str>>,
}

/// The state that the schedule keeps for a hold.
#[derive(Debug)]
pub(crate) struct Duties {
    /// Its place in the schedule; [`BootInstant::NEVER`] if it has none.
    pub(crate) due: BootInstant,
    pub(crate) next_renewal: BootInstant,
    /// The renewals that are under way: one of the schedule, and those that are sent ahead of it.
    pub(crate) renewals: u32,
    pub(crate) near_told: bool,
    /// The last renewal, if it failed.
    pub(crate) failed: Option<FailedRenewal>,
    /// The instant by which its release must end; [`BootInstant::NEVER`] if nobody checks that.
    pub(crate) release_ends: BootInstant,
}

impl Duties {
    pub(super) const fn new(next_renewal: BootInstant) -> Self {
        Self {
            due: BootInstant::NEVER,
            next_renewal,
            renewals: 0,
            near_told: false,
            failed: None,
            release_ends: BootInstant::NEVER,
        }
    }
}

/// Moves a renewal up to the tick before it, so that one request serves all holds that are due in that tick. Ticks are
/// powers of two, an eighth of the pause at most: holds of different cadences share them.
pub(crate) fn on_tick(due: BootInstant, pause: Duration) -> BootInstant {
    let most = u64::try_from(pause.as_nanos() / 8).unwrap_or(u64::MAX).max(1);
    let tick = 1 << most.ilog2();
    BootInstant::from_nanos(due.as_nanos() / tick * tick)
}
