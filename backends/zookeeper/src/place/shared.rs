//! The parts that all requests of a store share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_contract::{Claim, Owner, Result};
use zookeeper_client::{Acls, CreateMode, CreateOptions};

use crate::place::Place;
use crate::queue::{Layout, NodeMode};
use crate::server::paths::Paths;
use crate::session::Leases;

/// The parts that all requests of a store share.
pub(crate) struct Shared {
    pub(crate) leases: Arc<Leases>,
    pub(crate) paths: Paths,
    pub(crate) layout: Layout,
    pub(crate) acls: Acls<'static>,
    /// The place of each claim that may have nodes in the store.
    places: Mutex<HashMap<Owner, Arc<Place>>>,
}

impl Shared {
    pub(crate) fn new(leases: Arc<Leases>, paths: Paths, layout: Layout, acls: Acls<'static>) -> Arc<Self> {
        Arc::new(Self { leases, paths, layout, acls, places: Mutex::default() })
    }

    /// The claim's place. It exists until the claim is released or abandoned.
    pub(crate) fn place(&self, claim: &Claim) -> Result<Arc<Place>> {
        if let Some(present) = self.places().get(&claim.owner) {
            return Ok(present.clone());
        }
        let mode = NodeMode::of(claim.mode);
        let place = Place::new(self.paths.lock(&claim.key)?, self.layout.prefix(&claim.owner, mode), mode, self.acls);
        Ok(self.places().entry(claim.owner).or_insert(Arc::new(place)).clone())
    }

    /// The claim's place, if it may have nodes in the store.
    pub(crate) fn existing(&self, owner: Owner) -> Option<Arc<Place>> {
        self.places().get(&owner).cloned()
    }

    /// Forgets a place after a release, which is the last request of a claim.
    pub(crate) fn forget(&self, owner: Owner, place: &Arc<Place>) {
        let mut places = self.places();
        if places.get(&owner).is_some_and(|present| Arc::ptr_eq(present, place)) {
            places.remove(&owner);
        }
    }

    /// Forgets a place without nodes, unless another request of the claim waits for its state.
    pub(crate) fn forget_empty(&self, owner: Owner, place: &Arc<Place>) {
        let mut places = self.places();
        // One reference is the map's, and one the caller's. Others are made only through the map.
        if places.get(&owner).is_some_and(|present| Arc::ptr_eq(present, place)) && Arc::strong_count(place) <= 2 {
            places.remove(&owner);
        }
    }

    /// How the parent nodes of a queue are made. The server removes a container some time after its last child, as Curator
    /// expects it. Kazoo makes its path only once, so its parents must stay.
    pub(crate) fn parents(&self) -> CreateOptions<'static> {
        let mode = if self.layout == Layout::Kazoo { CreateMode::Persistent } else { CreateMode::Container };
        mode.with_acls(self.acls)
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Owner, Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
