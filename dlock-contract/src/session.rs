//! The session of a hold: the lease, the connection or the session in which it lives in the store.

use std::any::Any;
use std::sync::Arc;

use futures::future::BoxFuture;

/// The lease, the connection or the session in which a hold lives. A store gives it to its [`Hold`](crate::Hold), and
/// gets it back from there to renew and release.
///
/// ```
/// use dlock_contract::Session;
///
/// /// A lease that many holds share.
/// struct Lease(u64);
///
/// impl Session for Lease {
///     fn group(&self) -> Option<u64> {
///         Some(self.0)
///     }
/// }
/// ```
pub trait Session: Shared {
    /// The lease or session that it is, if several holds live in it: they are renewed by one request, and one loss ends
    /// them all. Two leases or sessions of one store have two numbers, also one after the other. `None`: one hold alone
    /// lives in it.
    fn group(&self) -> Option<u64> {
        None
    }

    /// Ends when the session may have ended, and at once if that was before the call. `None`: nobody can tell.
    ///
    /// It is a hint: the engine then renews the holds that live in the session, ahead of their schedule and also beside a
    /// renewal that is under way. A store that knows that the session has ended answers this renewal with
    /// [`Standing::Lost`](crate::Standing::Lost), without a request. A wrong hint costs one renewal and loses nothing; the
    /// engine calls this again after it, with a pause that grows while the hints follow each other.
    ///
    /// Of a group, the engine listens to one session for all. The future must not keep the session alive, if the store
    /// frees the lock when the session is dropped.
    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// Every type that threads may share. [`Hold::session`](crate::Hold::session) gives the store its own type back by it.
pub trait Shared: Any + Send + Sync {
    #[doc(hidden)]
    fn as_any(&self) -> &dyn Any;

    #[doc(hidden)]
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

// The language does this by itself from Rust 1.86 on; this crate claims an older one.
impl<T: Any + Send + Sync> Shared for T {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
