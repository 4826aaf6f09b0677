//! How a URL becomes a store.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::backend::Backend;
use crate::clock::Clock;
use crate::error::Result;

/// Opens the stores behind URLs of some schemes.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Opener {
    /// The schemes, in lower case: `redis` for `redis://…`.
    pub schemes: &'static [&'static str],
    /// Opens the store. The URL may hold a password, which no error and no log may show.
    pub open: Open,
}

/// Opens the store behind a URL.
pub type Open = for<'a> fn(url: &'a str, clock: &'a Clock) -> BoxFuture<'a, Result<Arc<dyn Backend>>>;

impl Opener {
    /// An opener for URLs of these schemes.
    #[must_use]
    pub const fn new(schemes: &'static [&'static str], open: Open) -> Self {
        Self { schemes, open }
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}
