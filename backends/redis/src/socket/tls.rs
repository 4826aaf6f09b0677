//! TLS by rustls: the files of the URL, and the error without the feature.

#[cfg(feature = "tls")]
use std::sync::Arc;

use ::redis::aio::AsyncStream;
use dlock_contract::{Error, Result};
use dlock_store::Address;
#[cfg(feature = "tls")]
use rustls::ClientConfig;
#[cfg(feature = "tls")]
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use tokio_rustls::TlsConnector;

#[cfg(feature = "tls")]
use crate::reply::fault;

/// A connected socket, with TLS or plain.
pub(crate) type Socket = Box<dyn AsyncStream + Send + Unpin>;

/// The TLS settings of a store. The files are read once.
#[derive(Clone)]
pub(crate) struct Tls {
    #[cfg(feature = "tls")]
    config: Arc<ClientConfig>,
}

impl Tls {
    /// # Errors
    /// Without the feature `redis-tls`; and for a file that cannot be read, whose path is not repeated.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn new(_: &Address) -> Result<Self> {
        Err(missing())
    }

    /// # Errors
    /// For a file that cannot be read, or is no certificate; its path is not repeated.
    #[cfg(feature = "tls")]
    pub(crate) fn new(address: &Address) -> Result<Self> {
        Ok(Self { config: dlock_store::Tls::verified(address)?.client_config()? })
    }

    /// Speaks TLS over a connection to this host.
    #[cfg(feature = "tls")]
    pub(crate) async fn over(&self, stream: TcpStream, host: &str) -> Result<Socket> {
        let name = ServerName::try_from(host)
            .map_err(|_| {
                Error::config(
                    "url",
                    "no certificate can name the host of the Redis URL; write a host name or an IP address",
                )
            })?
            .to_owned();
        let connected = TlsConnector::from(self.config.clone()).connect(name, stream).await;
        Ok(Box::new(connected.map_err(|error| fault::io(&error))?))
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) async fn over(&self, _: TcpStream, _: &str) -> Result<Socket> {
        Err(missing())
    }
}

#[cfg(not(feature = "tls"))]
fn missing() -> Error {
    Error::config(
        "url",
        "TLS for Redis needs the feature `redis-tls` of dlock-rs: cargo add dlock-rs --features redis-tls",
    )
}
