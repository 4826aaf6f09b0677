//! A look at a held lock. It owns nothing, so it may be cloned.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Fence, Key, LockKey, Result, Session, Standing};
use dlock_store::engine::{guarded, not_forked};

use crate::events::store_event::Operation;
use crate::hold::loss_cause::cause_of_loss;
use crate::hold::renewal;
use crate::hold::store::request_bound;
use crate::hold::tenure::Tenure;

/// A look at a held lock, from a [`Guard`](crate::Guard) or from [`current`](crate::current). Cloning it prolongs nothing.
#[derive(Clone)]
pub struct Held(pub(crate) Arc<Tenure>);

impl Held {
    /// The fencing token: hand it to the resource with every write, see `dlock::fenced`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] on a store that has none.
    pub fn fence(&self) -> Result<Fence> {
        self.0.fence()
    }

    /// Checks that the lock is still held. Local, without a request; correct also after the process was paused or
    /// suspended.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`].
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// Asks the store whether the lock is still held, and prolongs it by its ttl.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`]; [`ErrorKind::Outage`] if the store did not answer, which is no loss yet;
    /// [`ErrorKind::Unsupported`] in a child after `fork`, whose parent has the lock.
    pub async fn confirm(&self) -> Result<()> {
        self.check()?;
        not_forked().map_err(|error| self.0.named(error))?;
        let bound = request_bound(self.0.hold.claim.ttl);
        let request = self.0.store.ask(Operation::Renew, bound, &self.0, |backend, tenure| {
            Box::pin(async move {
                let mut answers = backend.renew(&[&tenure.hold]).await;
                answers.pop().unwrap_or_else(|| Err(Error::new(ErrorKind::Protocol, "the backend returned no answer")))
            })
        });
        let mut unanswered = None;
        match request.await {
            Ok(Standing::Renewed(validity)) => renewal::apply(&self.0.shared.clock, &self.0, Ok(validity)),
            Ok(Standing::Lost) => {
                self.0.lose(cause_of_loss(&self.0).await);
            }
            Err(error) => unanswered = Some(Error::outage(format!("the store did not confirm the lock: {error}"))),
        }
        self.check()?;
        unanswered.map_or(Ok(()), |error| Err(self.0.named(error)))
    }

    /// The time until the lock is lost if no further renewal succeeds. Zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.check().is_err() {
            return Duration::ZERO;
        }
        self.0.valid_until().since(self.0.shared.clock.now())
    }

    /// Until when this process believes that it has the lock; `None` once the hold has ended. Changes nothing.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    #[must_use]
    pub fn believed_until(&self) -> Option<dlock_contract::BootInstant> {
        self.0.is_held().then(|| self.0.valid_until())
    }

    /// Ends when the lock is lost, with the loss. Never ends if the lock is released in order.
    pub async fn lost(&self) -> Error {
        guarded(self.0.lost()).await
    }

    /// The number of the permit, from zero, unique among its living holders; `None` unless the mode is `permits`.
    #[must_use]
    pub fn slot(&self) -> Option<u32> {
        self.0.hold.slot
    }

    /// The lock's full name.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.0.hold.claim.key
    }

    /// Whether it is the lock of this key, in the namespace in which it was taken.
    #[must_use]
    pub fn is_of(&self, key: &Key) -> bool {
        let full = self.key().as_str();
        full.splitn(3, ':').nth(2) == Some(key.to_string().as_str())
    }

    /// The name under which the backend is installed.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.0.store.name
    }

    /// The session in which the hold lives, if it is of this type: for functions of one store, such as its
    /// transactions.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`]; [`ErrorKind::Unsupported`] if it is of another type, or of another store.
    #[doc(hidden)]
    pub fn session<T: Session>(&self, need: &str) -> Result<Arc<T>> {
        self.check()?;
        let other_session = || {
            let kind = ErrorKind::Unsupported { need: need.into() };
            self.0.error(kind, format!("the lock has no transaction or session for this call, which needs {need}"))
        };
        self.0.hold.shared_session().ok_or_else(other_session)
    }

    /// The ttl that was granted; a store that shares leases may have granted more than was asked.
    #[must_use]
    pub fn granted(&self) -> Duration {
        self.0.hold.validity.granted
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("key", &self.0.label.shown_key())
            .field("backend", &self.backend())
            .field("token", &self.0.hold.token)
            .field("held", &self.0.is_held())
            .finish()
    }
}
