//! Stores by their URLs.

use std::sync::Arc;

use dlock_contract::{Backend, Error, Origin, Result};
use dlock_store::background;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::api::registry::Registry;

/// Opens stores by URL. The engine knows no store, so the crate `dlock-rs` submits this table at link time.
#[doc(hidden)]
#[derive(Debug)]
pub struct UrlTable {
    pub open: OpenUrl,
    /// Checks a URL as far as it can be checked without its store.
    pub check: fn(&str) -> Result<()>,
    /// The names of the installed stores that the store behind a URL is made of.
    pub members: fn(&str) -> Vec<String>,
}

type OpenUrl = for<'a> fn(&'a str, &'a Registry) -> BoxFuture<'a, Result<Arc<dyn Backend>>>;

inventory::collect!(UrlTable);

impl UrlTable {
    pub(crate) fn of_program() -> Result<&'static Self> {
        let none = || {
            Error::config(
                "url",
                "no store can be opened by URL, because this program does not use the crate dlock-rs: add it, or call Registry::install",
            )
        };
        inventory::iter::<Self>.into_iter().next().ok_or_else(none)
    }
}

impl Registry {
    /// Opens the store behind a URL and installs it under a name.
    ///
    /// The URL may hold a password; it is never shown. Outside of every runtime dlock's own thread opens it.
    ///
    /// `paired://` and `migrating://` name two stores that are installed already.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](crate::ErrorKind::ConfigInvalid) for a wrong URL;
    /// [`ErrorKind::AlreadyRegistered`](crate::ErrorKind::AlreadyRegistered);
    /// [`ErrorKind::BackendNotRegistered`](crate::ErrorKind::BackendNotRegistered) for a URL that names a store which is not
    /// installed; else what the store's first answer was:
    /// unreachable, wrong password, a replica, settings under which locks would be lost.
    pub async fn connect(&self, name: &str, url: &str) -> Result<()> {
        let (table, url, registry) = (UrlTable::of_program()?, url.to_owned(), self.clone());
        let opening = async move { (table.open)(&url, &registry).await };
        self.install_opened(name, opening).await
    }

    /// Installs the store behind a URL without asking it: it is opened at its first use, so that a service starts while
    /// its store is down.
    ///
    /// The first lock or [`ready`](Self::ready) opens it, and calls meanwhile wait for that, each no
    /// longer than for a request. A store that cannot be opened is a store that fails: the call gets
    /// [`ErrorKind::Outage`](crate::ErrorKind::Outage) or what the store answered, `retry` and `on_outage` apply, and the
    /// next call opens anew; after five failures in a row one call a second does. Whether the store can do what the
    /// attributes ask is known when it is open: call [`verify`](Self::verify) after `ready`.
    ///
    /// ```no_run
    /// # use dlock_runtime as dlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), dlock::Error> {
    /// let registry = dlock::Registry::new();
    /// registry.connect_lazy("main", "memory://")?;
    /// let guard = registry.lock("stock:7").acquire().await?;  // opens the store
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](crate::ErrorKind::ConfigInvalid) for a wrong URL;
    /// [`ErrorKind::AlreadyRegistered`](crate::ErrorKind::AlreadyRegistered).
    pub fn connect_lazy(&self, name: &str, url: &str) -> Result<()> {
        let table = UrlTable::of_program()?;
        (table.check)(url)?;
        if (table.members)(url).iter().any(|member| member == name) {
            return Err(Error::config("name", format!("the store {name:?} cannot be made of itself")));
        }
        let url: Arc<str> = url.into();
        self.install_lazy(name, move |registry| {
            let url = url.clone();
            async move { (table.open)(&url, &registry).await }
        })
    }

    /// Installs the backend that `opening` gives.
    #[doc(hidden)]
    pub async fn install_opened(
        &self,
        name: &str,
        opening: impl Future<Output = Result<Arc<dyn Backend>>> + Send + 'static,
    ) -> Result<()> {
        self.context().check_free(name)?;
        // Outside of any runtime it is opened on our thread, as requests are.
        let opened = match Origin::here() {
            Some(_) => opening.await,
            None => background()?.run(opening).await.flatten(),
        };
        match opened {
            Ok(backend) => self.install_shared(name, backend),
            Err(error) => {
                self.context().note_opening_failure(name, &error);
                Err(error.with_backend(name))
            }
        }
    }

    /// Installs a store that is opened at its first use.
    #[doc(hidden)]
    pub fn install_lazy<F>(&self, name: &str, open: impl Fn(Self) -> F + Send + Sync + 'static) -> Result<()>
    where
        F: Future<Output = Result<Arc<dyn Backend>>> + Send + 'static,
    {
        self.context().install_lazy(name, Box::new(move |context| open(Self::of(context)).boxed()))
    }
}
