//! TLS by rustls: the files of the URL, and the error without the feature.

#[cfg(feature = "tls")]
use std::sync::Arc;

use ::redis::aio::AsyncStream;
#[cfg(feature = "tls")]
use ::redis::{ClientTlsConfig, TlsCertificates};
use dlock_contract::{Address, Error, Result};
#[cfg(feature = "tls")]
use rustls::pki_types::pem::PemObject;
#[cfg(feature = "tls")]
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
#[cfg(feature = "tls")]
use rustls::{ClientConfig, RootCertStore};
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
    /// For the client of a cluster, which reads them by itself.
    #[cfg(feature = "tls")]
    files: TlsCertificates,
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
        // If another part of the program has chosen a provider, its choice stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dlock_contract::Tls { ca: root_cert, identity, .. } = dlock_contract::Tls::verified(address)?;
        let client_tls = identity.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        let files = TlsCertificates { client_tls, root_cert };
        let config = config(&files).ok_or_else(|| {
            Error::config("ca", "the files for TLS (ca, cert, key) hold no certificates or keys in PEM")
        })?;
        Ok(Self { files, config: Arc::new(config) })
    }

    /// Speaks TLS over a connection to this host.
    #[cfg(feature = "tls")]
    pub(crate) async fn over(&self, stream: TcpStream, host: &str) -> Result<Socket> {
        let name = ServerName::try_from(host)
            .map_err(|_| Error::config("url", "the host of the Redis URL can have no certificate"))?
            .to_owned();
        let connected = TlsConnector::from(self.config.clone()).connect(name, stream).await;
        Ok(Box::new(connected.map_err(|error| fault::io(&error))?))
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) async fn over(&self, _: TcpStream, _: &str) -> Result<Socket> {
        Err(missing())
    }

    #[cfg(feature = "tls")]
    pub(crate) fn files(&self) -> TlsCertificates {
        self.files.clone()
    }
}

#[cfg(not(feature = "tls"))]
fn missing() -> Error {
    Error::config(
        "url",
        "TLS for Redis needs the feature `redis-tls` of dlock-rs: dlock-rs = { features = [\"redis-tls\"] }",
    )
}

/// The TLS settings that the files give. Without `ca` the system's authorities are trusted.
#[cfg(feature = "tls")]
fn config(files: &TlsCertificates) -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match &files.root_cert {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate.ok()?).ok()?;
            }
        }
        // An authority that cannot be read has signed no accepted certificate.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    match &files.client_tls {
        Some(ClientTlsConfig { client_cert, client_key }) => {
            let chain = CertificateDer::pem_slice_iter(client_cert).collect::<Result<Vec<_>, _>>().ok()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(client_key).ok()?).ok()
        }
        None => Some(builder.with_no_client_auth()),
    }
}
