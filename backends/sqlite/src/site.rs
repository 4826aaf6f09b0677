//! The file of a store and the clock of its leases.

use std::sync::Arc;

use tokio::sync::watch;

use crate::file::{Identity, Place};
use crate::index::Index;
use crate::look::Looks;
use crate::time::Time;
use crate::wakes::Wakes;

/// A file, a clock, and the waiters that hear of each other.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) place: Arc<Place>,
    pub(super) looks: Looks<Identity>,
    pub(super) indexes: Looks<Index>,
    /// Changes when all connections must be closed: the index that they share is not the one at its path any more.
    pub(super) index_lost: watch::Sender<()>,
    pub(super) time: Time,
    pub(super) wakes: Wakes,
}

impl Site {
    pub(super) fn new(place: Place, time: Time) -> Self {
        let place = Arc::new(place);
        let (looked_at, beside) = (place.clone(), place.clone());
        let wakes = Wakes::new(&place, time.clock());
        let (looks, indexes) = (Looks::new(move || looked_at.look()), Looks::new(move || Index::of(&beside)));
        Self { place, looks, indexes, index_lost: watch::Sender::new(()), time, wakes }
    }
}
