//! One won lock: since when and for how long it was granted, and the token that says in which order.

use std::any::Any;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::Claim;
use crate::error::{Error, ErrorKind, Result};
use crate::instant::BootInstant;
use crate::session_end::SessionEnd;

/// One won lock. Immutable and shared: the guard releases it while our thread may be renewing it, and both are safe
/// because the store decides by owner.
#[non_exhaustive]
pub struct Hold {
    /// What was asked for.
    pub claim: Arc<Claim>,
    /// The fencing token; `None` only where [`Profile::fencing`](crate::Profile::fencing) says so.
    pub token: Option<NonZeroU64>,
    /// Since when, and for how long, the store has granted it.
    pub validity: Validity,
    /// The number of the permit, from zero, unique among the living holders; only for [`Mode::Permits`](crate::Mode::Permits).
    pub slot: Option<u32>,
    /// Holds on one lease or session: renewed by one request, ended by one loss.
    pub group: Option<u64>,
    /// What else the store needs to renew and release: a connection, a lease. Downcast by the backend that made it.
    pub session: Option<Arc<dyn Any + Send + Sync>>,
    /// Told by the backend when the session that the hold lives in has ended; only where
    /// [`Profile::expiry`](crate::Profile::expiry) is a session.
    pub session_end: Option<SessionEnd>,
}

impl Hold {
    /// A hold with a token.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if the store gave zero, which no counter of ours gives.
    pub fn new(claim: Arc<Claim>, token: u64, validity: Validity) -> Result<Self> {
        let token = NonZeroU64::new(token)
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "the store gave zero as a fencing token"))?;
        Ok(Self { token: Some(token), ..Self::without_token(claim, validity) })
    }

    /// A hold of a store that gives no tokens.
    #[must_use]
    pub fn without_token(claim: Arc<Claim>, validity: Validity) -> Self {
        Self { claim, token: None, validity, slot: None, group: None, session: None, session_end: None }
    }

    /// Adds the permit's number.
    #[must_use]
    pub fn with_slot(mut self, slot: u32) -> Self {
        self.slot = Some(slot);
        self
    }

    /// Adds what the store needs to renew and release.
    #[must_use]
    pub fn with_session(mut self, session: Arc<dyn Any + Send + Sync>) -> Self {
        self.session = Some(session);
        self
    }

    /// Adds how the end of its session is told.
    #[must_use]
    pub fn ended_by(mut self, session_end: SessionEnd) -> Self {
        self.session_end = Some(session_end);
        self
    }

    /// Names the lease or session that it shares with others.
    #[must_use]
    pub fn in_group(mut self, group: u64) -> Self {
        self.group = Some(group);
        self
    }

    /// The same grant for another claim: for a backend that wraps another one, and names locks in another way.
    #[must_use]
    pub fn for_claim(&self, claim: Arc<Claim>) -> Self {
        let Self { token, validity, slot, group, session, session_end, .. } = self;
        let (session, session_end) = (session.clone(), session_end.clone());
        Self { claim, token: *token, validity: *validity, slot: *slot, group: *group, session, session_end }
    }

    /// The session, if it is of this type.
    #[must_use]
    pub fn session<T: 'static>(&self) -> Option<&T> {
        self.session.as_deref()?.downcast_ref()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", &self.claim.key)
            .field("token", &self.token)
            .field("validity", &self.validity)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

/// Since when, and for how long, the store has granted a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Validity {
    /// The instant before the request left (R1), or the anchored instant of a pushed grant: never that of the reply.
    pub from: BootInstant,
    /// The ttl really granted.
    pub granted: Duration,
}

impl Validity {
    /// Granted for so long, since an instant before the request left.
    #[must_use]
    pub const fn new(from: BootInstant, granted: Duration) -> Self {
        Self { from, granted }
    }

    /// When we stop believing: a hundredth of the ttl and two milliseconds early, for clocks that drift.
    #[must_use]
    pub fn deadline(self) -> BootInstant {
        self.from.after(self.granted.saturating_sub(margin(self.granted)))
    }
}

/// How much of a ttl is left for clocks that drift.
pub fn margin(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}
