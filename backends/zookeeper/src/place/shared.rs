//! The parts that all requests of a store share.

use std::sync::Arc;

use dlock_contract::{Claim, Result};
use dlock_store::ClaimStates;
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
    pub(crate) places: ClaimStates<Place>,
}

impl Shared {
    pub(crate) fn new(leases: Arc<Leases>, paths: Paths, layout: Layout, acls: Acls<'static>) -> Arc<Self> {
        Arc::new(Self { leases, paths, layout, acls, places: ClaimStates::default() })
    }

    /// The claim's place. It exists until the claim is released or abandoned.
    pub(crate) fn place(&self, claim: &Claim) -> Result<Arc<Place>> {
        self.places.get_or_make(claim.owner, || {
            let mode = NodeMode::of(claim.mode);
            Ok(Place::new(self.paths.lock(&claim.key)?, self.layout.prefix(&claim.owner, mode), mode, self.acls))
        })
    }

    /// How the parent nodes of a queue are made. The server removes a container some time after its last child, as Curator
    /// expects it. Kazoo makes its path only once, so its parents must stay.
    pub(crate) fn parents(&self) -> CreateOptions<'static> {
        let mode = if self.layout == Layout::Kazoo { CreateMode::Persistent } else { CreateMode::Container };
        mode.with_acls(self.acls)
    }
}
