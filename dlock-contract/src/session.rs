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

    /// Ends when the session may have ended, at once if it has ended before. `None`: nobody can tell.
    ///
    /// It is a hint. The engine then renews the holds of the session at once, even while another renewal is under way.
    /// A store that knows that the session has ended answers with [`Standing::Lost`](crate::Standing::Lost), without a
    /// request. A wrong hint costs one renewal and loses nothing. After it the engine calls this again, with a pause
    /// that grows while the hints follow each other.
    ///
    /// In a group, the engine listens to one session for all holds. If the store frees the lock when the session is
    /// dropped, the future must not keep the session alive.
    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// Every type that threads may share. Through it, [`Hold::session`](crate::Hold::session) gives the store its own type
/// back.
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
