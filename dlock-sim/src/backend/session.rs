//! The sessions of the model store, as its client sees them.

use std::sync::Arc;

use dlock_contract::{Claim, Hold, Mode, Result, Session, Validity};
use futures::future::BoxFuture;

use crate::plan::Lives;
use crate::store::Grant;
use crate::world::Shared;

/// Makes the holds of a client.
#[derive(Clone)]
pub(super) struct Sessions {
    world: Shared,
    lives: Lives,
}

/// The session of a hold.
struct ModelSession {
    world: Shared,
    number: u64,
    is_shared: bool,
}

impl Sessions {
    pub(super) fn new(world: Shared, lives: Lives) -> Self {
        Self { world, lives }
    }

    /// The hold of a grant.
    pub(super) fn hold(&self, claim: Arc<Claim>, grant: Grant, validity: Validity) -> Result<Hold> {
        let mode = claim.mode;
        let hold = Hold::new(claim, grant.token, validity)?;
        let hold = if let Mode::Permits(_) = mode { hold.with_slot(grant.slot) } else { hold };
        Ok(match grant.session {
            None => hold,
            Some(number) => {
                let is_shared = self.lives == Lives::InSharedSession;
                hold.with_session(Arc::new(ModelSession { world: self.world.clone(), number, is_shared }))
            }
        })
    }

    /// Whether the client knows that the session of this hold has ended.
    pub(super) fn has_ended(&self, hold: &Hold) -> bool {
        let session = hold.session::<ModelSession>();
        session.is_some_and(|session| self.world.with(|world| world.has_ended(session.number)))
    }
}

impl Session for ModelSession {
    fn group(&self) -> Option<u64> {
        self.is_shared.then_some(self.number)
    }

    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        let news = self.world.with(|world| world.listen_to(self.number));
        Some(Box::pin(async move {
            let _ = news.await;
        }))
    }
}
