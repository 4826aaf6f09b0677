//! The file of a store and the clock of its leases.

use std::sync::Arc;

use crate::file::{Identity, Place};
use crate::look::Looks;
use crate::time::Time;
use crate::wakes::Wakes;

/// A file, a clock, and the waiters that hear of each other.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) place: Arc<Place>,
    pub(super) looks: Looks<Identity>,
    pub(super) time: Time,
    pub(super) wakes: Wakes,
}

impl Site {
    pub(super) fn new(place: Place, time: Time) -> Self {
        let place = Arc::new(place);
        let looked_at = place.clone();
        let wakes = Wakes::new(&place, time.clock());
        Self { place, looks: Looks::new(move || looked_at.look()), time, wakes }
    }
}
