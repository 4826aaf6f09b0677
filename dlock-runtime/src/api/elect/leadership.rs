//! The leader's side: a guard that owns the leadership, and a handle that only looks at it.

use std::fmt;
use std::ops::Deref;

use dlock_contract::{Fence, HoldId, Result};

use crate::guard::Guard;
use crate::guard::held::Held;

/// A leadership. Dropping it resigns on dlock's own thread; [`resign`](Self::resign) does so here and says how.
///
/// Not `Clone`: there is one owner. [`Leader`], to which it dereferences, can be cloned.
#[must_use = "the leadership ends when this is dropped: write `let _leadership = …`, because `let _ = …` ends it at once"]
pub struct Leadership {
    pub(super) guard: Guard,
    leader: Leader,
}

impl Leadership {
    pub(super) fn new(guard: Guard) -> Result<Self> {
        let leader = Leader { term: guard.unused().fence()?, held: guard.unused().clone() };
        Ok(Self { guard, leader })
    }

    /// Ends the leadership, and lets the next candidate in at once.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the leadership had ended before; see [`Guard::release`].
    pub async fn resign(self) -> Result<()> {
        self.guard.release().await
    }

    /// As [`resign`](Self::resign), for code that is not async.
    ///
    /// # Errors
    /// As `resign`.
    pub fn resign_blocking(self) -> Result<()> {
        self.guard.release_blocking()
    }
}

impl Deref for Leadership {
    type Target = Leader;

    fn deref(&self) -> &Leader {
        &self.leader
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.leader, f)
    }
}

/// The leader's own look at its leadership: its term, and by [`Held`] whether it still leads (`check`), until when
/// (`remaining`), and a future that ends when it does not (`lost`). Cloning it prolongs nothing.
#[derive(Clone)]
pub struct Leader {
    held: Held,
    term: Fence,
}

impl Leader {
    /// The term: the fencing token of this leadership. A later leader of this election has a higher one. Hand it to the
    /// resource with every write, see `dlock::fenced`.
    #[must_use]
    pub const fn term(&self) -> &Fence {
        &self.term
    }

    /// Names this leadership, as observers see it ([`SeenLeader::id`](super::SeenLeader::id)).
    #[must_use]
    pub fn id(&self) -> HoldId {
        HoldId::of(&self.held.0.hold.claim.owner)
    }
}

impl Deref for Leader {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader").field("term", &self.term.get()).field("held", &self.held).finish()
    }
}
