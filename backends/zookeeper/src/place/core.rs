//! What all requests of a store share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_contract::{Claim, Owner, Result};
use zookeeper_client::{Acls, CreateMode, CreateOptions};

use crate::line::{Kind, Layout};
use crate::place::Place;
use crate::session::Leases;
use crate::wire::paths::Paths;

/// What all requests of a store share.
pub(crate) struct Core {
    pub(crate) leases: Arc<Leases>,
    pub(crate) paths: Paths,
    pub(crate) layout: Layout,
    pub(crate) acls: Acls<'static>,
    /// The traces that each claim may have left in the store.
    places: Mutex<HashMap<Owner, Arc<Place>>>,
}

impl Core {
    pub(crate) fn new(leases: Arc<Leases>, paths: Paths, layout: Layout, acls: Acls<'static>) -> Arc<Self> {
        Arc::new(Self { leases, paths, layout, acls, places: Mutex::default() })
    }

    /// The claim's place, which it has until it is released or abandoned.
    pub(crate) fn place(&self, claim: &Claim) -> Result<Arc<Place>> {
        if let Some(present) = self.places().get(&claim.owner) {
            return Ok(present.clone());
        }
        let kind = Kind::of(claim.mode);
        let place = Place::new(self.paths.lock(&claim.key)?, self.layout.prefix(&claim.owner, kind), kind, self.acls);
        Ok(self.places().entry(claim.owner).or_insert(Arc::new(place)).clone())
    }

    /// The claim's place, if anything of it may be in the store.
    pub(crate) fn standing(&self, owner: Owner) -> Option<Arc<Place>> {
        self.places().get(&owner).cloned()
    }

    /// After a release, which is the last request of a claim.
    pub(crate) fn forget(&self, owner: Owner, place: &Arc<Place>) {
        let mut places = self.places();
        if places.get(&owner).is_some_and(|present| Arc::ptr_eq(present, place)) {
            places.remove(&owner);
        }
    }

    /// Forgets a place that is empty, unless another request of the claim waits for its turn there.
    pub(crate) fn forget_empty(&self, owner: Owner, place: &Arc<Place>) {
        let mut places = self.places();
        // One is the map's, and one the caller's. Others come only through the map.
        if places.get(&owner).is_some_and(|present| Arc::ptr_eq(present, place)) && Arc::strong_count(place) <= 2 {
            places.remove(&owner);
        }
    }

    /// How the parents of a line are made. Containers are removed by the server some time after their last child, as
    /// Curator expects it. Kazoo makes sure of its path once, so there it has to stay.
    pub(crate) fn parents(&self) -> CreateOptions<'static> {
        let mode = if self.layout == Layout::Kazoo { CreateMode::Persistent } else { CreateMode::Container };
        mode.with_acls(self.acls)
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Owner, Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
