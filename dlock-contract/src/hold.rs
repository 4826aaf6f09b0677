//! One won lock: the start and the length of its grant, and its fencing token.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::Claim;
use crate::error::{Error, ErrorKind, Result};
use crate::instant::BootInstant;
use crate::session::Session;

/// One won lock. Immutable and shared: the guard releases it while our thread may be renewing it, and both are safe
/// because the store compares the owner.
#[non_exhaustive]
pub struct Hold {
    /// The claim that won it.
    pub claim: Arc<Claim>,
    /// The fencing token; `None` only where [`Profile::fencing`](crate::Profile::fencing) says so.
    pub token: Option<NonZeroU64>,
    /// The start and the length of the grant.
    pub validity: Validity,
    /// The number of the permit, from zero, unique among the living holders; only for [`Mode::Permits`](crate::Mode::Permits).
    pub slot: Option<u32>,
    /// The lease, connection or session in which it lives, which the store needs to renew and to release it. The store
    /// that made it gets it back by [`session`](Self::session).
    pub session: Option<Arc<dyn Session>>,
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
        Self { claim, token: None, validity, slot: None, session: None }
    }

    /// Adds the permit's number.
    #[must_use]
    pub fn with_slot(mut self, slot: u32) -> Self {
        self.slot = Some(slot);
        self
    }

    /// Adds the session in which it lives.
    #[must_use]
    pub fn with_session(mut self, session: Arc<dyn Session>) -> Self {
        self.session = Some(session);
        self
    }

    /// The same grant for another claim: for a backend that wraps another one, and names locks in another way.
    #[must_use]
    pub fn for_claim(&self, claim: Arc<Claim>) -> Self {
        let Self { token, validity, slot, session, .. } = self;
        Self { claim, token: *token, validity: *validity, slot: *slot, session: session.clone() }
    }

    /// The session, if it is of this type.
    #[must_use]
    pub fn session<T: Session>(&self) -> Option<&T> {
        // The inner one: `Arc` is a type of its own that is `Shared`.
        self.session.as_deref()?.as_any().downcast_ref()
    }

    /// The session as it is shared, if it is of this type.
    #[must_use]
    pub fn shared_session<T: Session>(&self) -> Option<Arc<T>> {
        self.session.clone()?.into_any().downcast().ok()
    }

    /// The lease or session that it shares with others; see [`Session::group`].
    #[must_use]
    pub fn group(&self) -> Option<u64> {
        self.session.as_ref()?.group()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", &self.claim.key)
            .field("token", &self.token)
            .field("validity", &self.validity)
            .field("group", &self.group())
            .finish_non_exhaustive()
    }
}

/// The start and the length of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Validity {
    /// The instant before the request left, or the anchored instant of a pushed grant: never that of the reply.
    pub from: BootInstant,
    /// The ttl that the store granted.
    pub granted: Duration,
}

impl Validity {
    /// Granted for this long, from an instant before the request left.
    #[must_use]
    pub const fn new(from: BootInstant, granted: Duration) -> Self {
        Self { from, granted }
    }

    /// The instant at which the engine stops trusting the hold: a hundredth of the ttl and two milliseconds before the
    /// grant ends, for clocks that drift.
    #[must_use]
    pub fn deadline(self) -> BootInstant {
        self.from.after(self.granted.saturating_sub(Self::margin(self.granted)))
    }

    /// The part of a ttl that is left out for clocks that drift.
    #[must_use]
    pub fn margin(ttl: Duration) -> Duration {
        ttl / 100 + Duration::from_millis(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Key, LockKey};

    struct Lease(u64);

    impl Session for Lease {
        fn group(&self) -> Option<u64> {
            Some(self.0)
        }
    }

    struct Socket;

    impl Session for Socket {}

    #[test]
    fn a_store_gets_its_own_session_back_and_no_other() {
        let claim = Claim::new(LockKey::new("n", Key::text("k")).unwrap(), Duration::from_secs(1), "site").unwrap();
        let claim = Arc::new(claim);
        let hold = Hold::without_token(claim.clone(), Validity::new(BootInstant::from_nanos(1), claim.ttl));
        assert!(hold.group().is_none() && hold.session::<Lease>().is_none());
        let lease = Arc::new(Lease(7));
        let hold = hold.with_session(lease.clone()).for_claim(claim);
        assert_eq!((hold.group(), hold.session::<Lease>().unwrap().0), (Some(7), 7));
        assert!(Arc::ptr_eq(&hold.shared_session::<Lease>().unwrap(), &lease));
        assert!(hold.session::<Socket>().is_none() && hold.shared_session::<Socket>().is_none());
        let socket = hold.with_session(Arc::new(Socket));
        assert!(socket.group().is_none() && socket.session::<Socket>().is_some());
    }
}
