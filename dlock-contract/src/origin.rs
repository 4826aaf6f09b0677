//! The runtime from which requests come.

use tokio::runtime::{Handle, Id};

/// The runtime in which the attempts of a claim run. It is opaque: a store compares it, and finds the connection of that
/// runtime by it, for instance with `PerRuntime::peek` of `dlock-store`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin(Id);

impl Origin {
    /// The runtime around the caller; `None` outside of a runtime.
    #[must_use]
    pub fn here() -> Option<Self> {
        Handle::try_current().ok().map(|handle| Self::of(&handle))
    }

    /// The runtime of this handle.
    #[must_use]
    pub fn of(handle: &Handle) -> Self {
        Self(handle.id())
    }
}
