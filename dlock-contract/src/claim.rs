//! A claim: the request for one lock.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::Result;
use crate::hold_id::HoldId;
use crate::key::LockKey;
use crate::mode::Mode;
use crate::note::Note;
use crate::once_per::OncePer;
use crate::origin::Origin;
use crate::owner::Owner;

/// The request of one acquisition. Built once, unchanged through all of its attempts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The key, as the caller gave it; see [`Backend::identify`](crate::Backend::identify).
    pub key: LockKey,
    /// The owner: fresh for each acquisition.
    pub owner: Owner,
    /// How long the store keeps the lock without a renewal.
    pub ttl: Duration,
    /// Whether the hold will be renewed. Where holds share a lease, a hold that is not renewed needs a lease of its
    /// own.
    pub renewed: bool,
    /// The lock mode. Only one that the store can do by its [`Profile`](crate::Profile).
    ///
    /// Each holder has a lease, an owner and a note of its own, and ends alone. [`Mode::Read`] comes in beside readers,
    /// but waits behind a writer that waits. [`Mode::Permits`] has the lowest [slot](crate::Hold::slot) that no living
    /// hold has; a hold that ends frees just its own.
    pub mode: Mode,
    /// Whether waiters are served in the order in which they came. Only where [`Profile::fair`](crate::Profile::fair).
    pub fair: bool,
    /// At most one start in each period; only where the store offers [`Periods`](crate::Periods).
    ///
    /// A period is named by its boundary, one of the times [`offset`](OncePer::offset) + k ×
    /// [`period`](OncePer::period) since 1970. Each attempt takes the boundary that is nearest by the store's wall
    /// clock. If a run of this boundary or a later one was started under the key, the answer is
    /// [`Attempt::AlreadyRun`](crate::Attempt::AlreadyRun), also while its winner still holds the lock. A run of an
    /// earlier period that still holds the lock is contention as usual.
    ///
    /// With [`OncePer::rerun`], a run that was started and has not ended (no [`RunEnd`](crate::RunEnd) came) is contention
    /// for as long as any owner holds the lock, and is granted again once it is free, and no earlier: a plain release
    /// frees it at once, a lease when it ends. When it has ended the answer is [`Attempt::AlreadyRun`](crate::Attempt::AlreadyRun), also while the key
    /// is [kept](crate::Keeps::keep): who waits learns of that end as of a release, and not by the end of a lease.
    ///
    /// The step that grants the lock also records the start of the run, even if the store hands the lock over from its
    /// wait queue. The record outlives release and expiry. The store may forget it two periods later.
    ///
    /// An [abandon](crate::Backend::abandon) deletes the start that this claim recorded, and no other start. No body ran, so
    /// the period is due again. While the claim still asks, a start that it recorded itself does not count: the reply to
    /// that attempt may have been lost. With `rerun`, an abandoned start may stay as a run that has not ended.
    pub once_per: Option<Box<OncePer>>,
    /// See [`inside`](Self::inside). Most claims have none, and there may be many claims: so it is one word.
    inside: Option<Arc<Vec<HoldId>>>,
    /// The note that the store keeps beside the owner.
    pub note: Note,
    /// The runtime in which the attempts run; an abandon goes over the same connection while that lives, since two
    /// connections have no order.
    pub origin: Option<Origin>,
}

impl Claim {
    /// A claim with a fresh owner, renewed, noted as `site`; for the conformance suite and for tests of backends.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn new(key: LockKey, ttl: Duration, site: &str) -> Result<Self> {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
        let note = Note::new(std::process::id(), site, wall_ms, None);
        Ok(Self { origin: Origin::here(), ..Self::plain(key, Owner::fresh()?, ttl, note) })
    }

    /// The innermost holds of the enclosing calls in the same store, where that offers [`Settle`](crate::Settle). The caller
    /// keeps them while it waits for this claim. So a store that has news for waiters finds calls that wait for each other's
    /// locks, and lets one of them give way: its [signal](crate::Wake::on) fails with
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict), and the others wait on.
    #[must_use]
    pub fn inside(&self) -> &[HoldId] {
        self.inside.as_ref().map_or(&[], |holds| holds)
    }

    /// Says inside of which holds the caller asks.
    pub fn set_inside(&mut self, holds: Vec<HoldId>) {
        self.inside = (!holds.is_empty()).then(|| Arc::new(holds));
    }

    /// The claim after a change of its fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// An exclusive claim that asks for nothing special; the engine sets the other fields.
    #[must_use]
    pub const fn plain(key: LockKey, owner: Owner, ttl: Duration, note: Note) -> Self {
        Self {
            key,
            owner,
            ttl,
            renewed: true,
            mode: Mode::Exclusive,
            fair: false,
            once_per: None,
            inside: None,
            note,
            origin: None,
        }
    }
}
