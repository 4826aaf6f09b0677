//! Opens a store by more than a URL: with the settings of a pool, or with a provider of credentials.

use std::fmt;
use std::sync::Arc;

use dlock_contract::{Backend, Result};
use dlock_store::{Address, Clock, UrlForm};
use futures::future::BoxFuture;

use crate::connection::credentials::{Credentials, Login};

/// Options of a URL that the settings of a pool contain already.
const OF_CONNECTIONS: [&str; 5] = ["tls", "ca", "cert", "key", "socket"];

/// A kind of server that a [`Builder`] can open.
pub trait Product: Sized {
    /// The settings of its client.
    type ConnectOptions: Clone;

    /// Its URLs.
    const FORM: &'static UrlForm;

    /// Opens the store.
    fn open(source: Source<Self::ConnectOptions>, clock: &Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>>;
}

/// The address of a store, and the ways to log in to it.
#[derive(Clone)]
pub struct Source<S> {
    /// The URL. Beside settings of a pool only its options count.
    pub address: Address,
    /// The settings of a pool, for the client.
    pub settings: Option<S>,
    /// The provider of the account for each connect.
    pub credentials: Option<Credentials>,
}

/// Opens a store by more than a URL.
///
/// ```ignore
/// let store = dlock::backends::postgres::Builder::url("postgres://app@db.example/shop?tls=verify")?
///     .credentials(|| async { token().await.map(Login::password) })
///     .open(&Clock::system())
///     .await?;
/// dlock::Registry::global().install_shared("main", store)?;
/// ```
pub struct Builder<P: Product>(Source<P::ConnectOptions>);

impl<P: Product> Builder<P> {
    /// A URL as `dlock::connect` takes it.
    ///
    /// # Errors
    /// For a URL that cannot be.
    pub fn url(url: &str) -> Result<Self> {
        Ok(Self(Source { address: Address::parse(url, P::FORM)?, settings: None, credentials: None }))
    }

    /// The settings of your own pool, `pool.connect_options()`: host, database, account and TLS. Only the settings are taken,
    /// and none of its connections: dlock's are driven by tasks of its own.
    ///
    /// `options` are those of a URL, as after its `?`, such as `way=named&connect_timeout=2s`; empty for none.
    ///
    /// # Errors
    /// For options that cannot be, and for those that the settings have already, such as `tls`.
    pub fn settings(settings: &P::ConnectOptions, options: &str) -> Result<Self> {
        // The account, the host and the database are those of the settings.
        let scheme = P::FORM.schemes.first().copied().unwrap_or_default();
        let address = Address::parse(&format!("{scheme}://settings@localhost/settings?{options}"), P::FORM)?;
        match OF_CONNECTIONS.iter().find(|name| address.option(name).is_some()) {
            Some(name) => {
                Err(address
                    .wrong(&format!("`{name}` is not allowed beside the settings of your own pool; set it there")))
            }
            None => Ok(Self(Source { address, settings: Some(settings.clone()), credentials: None })),
        }
    }

    /// Asks this function for the account of each connect, also later and on dlock's own thread: for passwords that are
    /// rotated, and for tokens. The time for a connect (`connect_timeout`) is also its time.
    ///
    /// If it fails, the request is an [`Outage`](dlock_contract::ErrorKind::Outage) with the code `credentials`, and a retry
    /// may help. Its error is shown nowhere, because it could hold a secret: let the function log it.
    #[must_use]
    pub fn credentials<F, E>(mut self, provide: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = std::result::Result<Login, E>> + Send + 'static,
    {
        self.0.credentials = Some(Credentials::new(provide));
        self
    }

    /// Opens the store, for `install_shared` of a registry.
    ///
    /// # Errors
    /// As a store that is opened by its URL.
    pub async fn open(self, clock: &Clock) -> Result<Arc<dyn Backend>> {
        P::open(self.0, clock).await
    }
}

impl<P: Product> fmt::Debug for Builder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Builder")
    }
}
