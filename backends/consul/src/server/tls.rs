//! TLS with rustls, or an error if the feature is off.

use dlock_contract::{Error, Result, Tls};
use tokio::net::TcpStream;

use crate::server::connector::Socket;

/// Speaks TLS over connected sockets.
#[derive(Clone)]
#[cfg(feature = "tls")]
pub(super) struct Handshake(tokio_rustls::TlsConnector, rustls::pki_types::ServerName<'static>);

#[cfg(feature = "tls")]
impl Handshake {
    /// # Errors
    /// Files without certificates or keys, and a host that cannot have a certificate.
    pub(super) fn new(tls: &Tls, host: &str) -> Result<Self> {
        // If another part of the program has chosen a provider, this changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let name = rustls::pki_types::ServerName::try_from(host.to_owned()).map_err(|_| {
            Error::config("url", "the host of the Consul URL is not a name that a certificate can have")
        })?;
        let config = config(tls).ok_or_else(|| {
            Error::config("ca", "the files for TLS (ca, cert, key) hold no certificates or keys in PEM")
        })?;
        Ok(Self(tokio_rustls::TlsConnector::from(std::sync::Arc::new(config)), name))
    }

    pub(super) async fn over(&self, stream: TcpStream) -> Result<Socket> {
        let connected = self.0.connect(self.1.clone(), stream).await;
        Ok(Box::new(connected.map_err(|error| Error::outage("the TLS handshake with Consul failed").because(error))?))
    }
}

/// The TLS settings from the files. Without a `ca`, the system's authorities are trusted.
#[cfg(feature = "tls")]
fn config(tls: &Tls) -> Option<rustls::ClientConfig> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    let mut roots = rustls::RootCertStore::empty();
    match &tls.ca {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate.ok()?).ok()?;
            }
        }
        // An unreadable certificate of the system is passed over: it then verifies nothing.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
    match &tls.identity {
        Some((cert, key)) => {
            let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<Vec<_>, _>>().ok()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key).ok()?).ok()
        }
        None => Some(builder.with_no_client_auth()),
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
            "TLS for Consul needs the feature `consul-tls` of dlock-rs: dlock-rs = { features = [\"consul-tls\"] }",
        ))
    }

    pub(super) async fn over(&self, _: TcpStream) -> Result<Socket> {
        match *self {}
    }
}
