//! TLS with rustls, or an error if the feature is off.

use dlock_contract::{Error, Result};
use dlock_store::Tls;
use tokio::net::TcpStream;

use crate::server::socket::Socket;

/// Speaks TLS over connected sockets.
#[derive(Clone)]
#[cfg(feature = "tls")]
pub(super) struct Handshake(tokio_rustls::TlsConnector, rustls::pki_types::ServerName<'static>);

#[cfg(feature = "tls")]
impl Handshake {
    /// # Errors
    /// Files without certificates or keys, and a host that cannot have a certificate.
    pub(super) fn new(tls: &Tls, host: &str) -> Result<Self> {
        let name = rustls::pki_types::ServerName::try_from(host.to_owned()).map_err(|_| {
            Error::config("url", "the host of the Consul URL is not a name that a certificate can have")
        })?;
        Ok(Self(tokio_rustls::TlsConnector::from(tls.client_config()?), name))
    }

    pub(super) async fn over(&self, stream: TcpStream) -> Result<Socket> {
        let connected = self.0.connect(self.1.clone(), stream).await;
        let failed = |error| Error::outage(format!("the TLS handshake with Consul failed: {error}"));
        Ok(Box::new(connected.map_err(failed)?))
    }
}

/// The replacement for TLS in a build without the feature.
#[derive(Clone)]
#[cfg(not(feature = "tls"))]
pub(super) enum Handshake {}

#[cfg(not(feature = "tls"))]
impl Handshake {
    pub(super) fn new(_: &Tls, _: &str) -> Result<Self> {
        Err(Error::config(
            "tls",
            "TLS for Consul needs the feature `consul-tls` of dlock-rs: cargo add dlock-rs --features consul-tls",
        ))
    }

    pub(super) async fn over(&self, _: TcpStream) -> Result<Socket> {
        match *self {}
    }
}
