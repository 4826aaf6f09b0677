//! How a URL becomes a store.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::address::Address;
use crate::address::url_form::UrlForm;
use crate::backend::Backend;
use crate::clock::Clock;
use crate::error::Result;

/// Opens the stores behind URLs of some schemes.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Opener {
    /// The form of the URLs: their schemes, and their options. The registry reads the URL by it.
    pub form: &'static UrlForm,
    /// Opens the store. The address may hold a password, which no error and no log may show.
    pub open: Open,
    /// Finds what is wrong with an address by its own text, as `open` does before it asks anybody.
    pub check: Check,
}

/// Opens the store at an address.
pub type Open = fn(address: Address, clock: &Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>>;

/// Checks an address without its store.
pub type Check = fn(&Address) -> Result<()>;

impl Opener {
    /// An opener for URLs of this form.
    #[must_use]
    pub const fn new(form: &'static UrlForm, open: Open) -> Self {
        Self { form, open, check: |_| Ok(()) }
    }

    /// Checks addresses too, for stores that are opened later.
    #[must_use]
    pub const fn checked_by(mut self, check: Check) -> Self {
        self.check = check;
        self
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("schemes", &self.form.schemes).finish_non_exhaustive()
    }
}
