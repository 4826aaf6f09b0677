//! How a URL becomes a store.

use std::fmt;
use std::sync::Arc;

use dlock_contract::{Backend, Result};
use futures::future::BoxFuture;

use crate::address::Address;
use crate::address::url_form::UrlForm;
use crate::clock::Clock;

/// Opens the stores behind URLs of some schemes.
///
/// ```
/// use dlock_contract::Error;
/// use dlock_store::{Opener, UrlBody, UrlForm};
///
/// const FORM: UrlForm = UrlForm::new("a Cupboard URL", "cupboard://host", &["cupboard"], UrlBody::Hosts);
/// /// The facade asks for it by the scheme.
/// const OPENER: Opener = Opener::new(&FORM, |address, _clock| {
///     Box::pin(async move { Err(Error::outage(format!("nobody listens at {:?}", address.hosts()))) })
/// })
/// .checked_by(|address| match address.hosts() {
///     [_] => Ok(()),
///     _ => Err(address.wrong("names one host")),
/// });
/// # let _ = OPENER;
/// ```
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
