//! TLS by rustls: which files, and what to say where the feature is missing.

use ::redis::{Client, ConnectionInfo};
#[cfg(feature = "redis-tls")]
use ::redis::{ClientTlsConfig, TlsCertificates};

use super::super::settings::Settings;
use crate::error::{Error, Result};

/// What a connection needs beside the address; the files are read once.
#[derive(Clone)]
pub(in super::super) struct Tls {
    #[cfg(feature = "redis-tls")]
    files: TlsCertificates,
}

#[cfg(feature = "redis-tls")]
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

impl Tls {
    /// # Errors
    /// Without the feature `redis-tls`; and for a file that cannot be read, whose path is not repeated.
    #[cfg(not(feature = "redis-tls"))]
    pub(in super::super) fn new(_: &Settings) -> Result<Self> {
        Err(Error::config(
            "url",
            "TLS for Redis needs the feature `redis-tls` of dlock-rs: dlock-rs = { features = [\"redis-tls\"] }",
        ))
    }

    /// # Errors
    /// For a file that cannot be read, or is no certificate; its path is not repeated.
    #[cfg(feature = "redis-tls")]
    pub(in super::super) fn new(settings: &Settings) -> Result<Self> {
        // Where another part of the program has chosen a provider, that one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let read = |name: &'static str, path: &Option<String>| match path {
            None => Ok(None),
            Some(path) => std::fs::read(path).map(Some).map_err(|error| {
                Error::config(name, format!("the file named by {name}= cannot be read: {}", error.kind()))
            }),
        };
        let client_tls = match (read("cert", &settings.cert)?, read("key", &settings.key)?) {
            (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig { client_cert, client_key }),
            (None, None) => None,
            _ => return Err(Error::config("cert", "a client's certificate needs its key: give both cert= and key=")),
        };
        let root_cert = read("ca", &settings.ca)?;
        // A file without any would only make every certificate a stranger's.
        let is_empty = |pem: &Vec<u8>| !pem.windows(CERTIFICATE.len()).any(|text| text == CERTIFICATE);
        if root_cert.as_ref().is_some_and(is_empty) {
            return Err(Error::config("ca", "the file named by ca= holds no certificate in PEM"));
        }
        Ok(Self { files: TlsCertificates { client_tls, root_cert } })
    }

    /// The client of a server behind an address with TLS.
    pub(in super::super) fn open(&self, info: ConnectionInfo) -> Result<Client> {
        #[cfg(feature = "redis-tls")]
        let client = Client::build_with_tls(info, self.files.clone());
        #[cfg(not(feature = "redis-tls"))]
        let client = Client::open(info);
        client.map_err(|_| Error::config("ca", "the files for TLS (ca, cert, key) hold no certificates or keys in PEM"))
    }

    #[cfg(feature = "redis-tls")]
    pub(in super::super) fn files(&self) -> TlsCertificates {
        self.files.clone()
    }
}
