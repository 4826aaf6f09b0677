//! TLS, as an address asks for it: `tls`, `ca`, `cert` and `key`.

use std::fmt;
use std::net::IpAddr;
#[cfg(feature = "rustls")]
use std::sync::Arc;

use dlock_contract::{Error, Result};
#[cfg(feature = "rustls")]
use rustls::pki_types::pem::PemObject;
#[cfg(feature = "rustls")]
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
#[cfg(feature = "rustls")]
use rustls::{ClientConfig, RootCertStore};

use crate::address::Address;
use crate::address::url_form::OptionRow;

/// The kind of content that a file must hold, and its first line.
type Pem = (&'static str, &'static str);
const CERTIFICATE: Pem = ("certificate", "-----BEGIN CERTIFICATE-----");
/// There are several kinds of keys.
const PRIVATE_KEY: Pem = ("private key", "PRIVATE KEY-----");

/// The TLS of an address. The files are read.
///
/// ```
/// use dlock_store::{Address, OptionRow, Tls, TlsMode, UrlBody, UrlForm};
///
/// const FORM: UrlForm = UrlForm::new("a Cupboard URL", "cupboard://host", &["cupboard"], UrlBody::Hosts)
///     .options(&[OptionRow::TLS, OptionRow::CA]);
///
/// let here = Address::parse("cupboard://127.0.0.1", &FORM)?;
/// assert_eq!(Tls::by_option(&here, false)?.mode, TlsMode::Off);
/// // There is no default for another machine.
/// let elsewhere = Address::parse("cupboard://kitchen.example", &FORM)?;
/// assert!(Tls::by_option(&elsewhere, false).is_err());
/// # Ok::<(), dlock_contract::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Tls {
    /// Whether the connection is encrypted, and whether the server's certificate is looked at.
    pub mode: TlsMode,
    /// The authorities that sign the servers' certificates, in PEM. The system's own where there are none.
    pub ca: Option<Vec<u8>>,
    /// The client's own certificate and its private key, in PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Whether a connection is encrypted, and whether the server's certificate is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsMode {
    /// Not encrypted.
    Off,
    /// Encrypted; any certificate is accepted.
    Require,
    /// Encrypted; the server shows a certificate for its very name.
    Verify,
}

impl OptionRow {
    /// `tls=verify`, `tls=require` or `tls=off`: see [`Tls::by_option`].
    pub const TLS: Self = Self::one_of("tls", &["verify", "require", "off"]);
    /// `ca=file`.
    pub const CA: Self = Self::new("ca", "a file with the authority's certificates in PEM");
    /// `cert=file`.
    pub const CERT: Self = Self::new("cert", "a file with the client's certificate in PEM");
    /// `key=file`.
    pub const KEY: Self = Self::new("key", "a file with the certificate's private key in PEM");
}

impl Tls {
    /// The TLS of a store with the option `tls`. A host that is not this one must say which: there is no good default, see
    /// `docs/adr/0002-keys.md`.
    ///
    /// # Errors
    /// If a host that is not this one does not say it; for options that mean nothing together; for a file that cannot be
    /// read or is not PEM.
    pub fn by_option(address: &Address, by_socket: bool) -> Result<Self> {
        let is_here = by_socket || address.hosts().iter().all(|host| is_here(&host.name));
        let takes_require = address.can_be("tls", "require");
        let mode = match address.option("tls") {
            Some("verify") => TlsMode::Verify,
            Some("require") => TlsMode::Require,
            Some(_) => TlsMode::Off,
            None if is_here => TlsMode::Off,
            None => {
                let rogue = if takes_require {
                    "with tls=require or tls=off a rogue server can have the password"
                } else {
                    "with tls=off a rogue server can have the password"
                };
                let text = format!(
                    "say how to reach a host that is not this one: add tls=verify (and ca=/path/ca.pem for an authority \
                     of your own); {rogue}"
                );
                return Err(Error::config("tls", text));
            }
        };
        let has = |name| address.option(name).is_some();
        if mode != TlsMode::Off && by_socket {
            let text = "a Unix socket is not encrypted: leave out tls, or name a host instead of the socket";
            return Err(Error::config("tls", text));
        }
        if mode != TlsMode::Verify && has("ca") {
            return Err(Error::config("ca", "ca is only used with tls=verify"));
        }
        if mode == TlsMode::Off && (has("cert") || has("key")) {
            let needs = if takes_require { "tls=verify or tls=require" } else { "tls=verify" };
            return Err(Error::config("cert", format!("cert and key need {needs}")));
        }
        Self::with_files(address, mode)
    }

    /// The TLS of a store whose scheme asks for it: the server's certificate is looked at.
    ///
    /// # Errors
    /// For a file that cannot be read or is not PEM, and a certificate without its key.
    pub fn verified(address: &Address) -> Result<Self> {
        Self::with_files(address, TlsMode::Verify)
    }

    fn with_files(address: &Address, mode: TlsMode) -> Result<Self> {
        if address.option("cert").is_some() != address.option("key").is_some() {
            return Err(Error::config("cert", "a client's certificate needs its key: give both cert= and key="));
        }
        let identity = file(address, "cert", CERTIFICATE)?.zip(file(address, "key", PRIVATE_KEY)?);
        Ok(Self { mode, ca: file(address, "ca", CERTIFICATE)?, identity })
    }
}

#[cfg(feature = "rustls")]
impl Tls {
    /// The settings of rustls that the files give: the server must show a certificate for its name. Without a `ca`, the
    /// system's authorities are trusted.
    ///
    /// # Errors
    /// If the files hold a certificate or a key that cannot be read.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>> {
        // If another part of the program has chosen a provider, its choice stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = self.config().ok_or_else(|| {
            Error::config("ca", "the files for TLS (ca, cert, key) hold no certificates or keys in PEM")
        })?;
        Ok(Arc::new(config))
    }

    fn config(&self) -> Option<ClientConfig> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(pem) => {
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    roots.add(certificate.ok()?).ok()?;
                }
            }
            // An unreadable certificate of the system is passed over: it then verifies nothing.
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        }
        let builder = ClientConfig::builder().with_root_certificates(roots);
        match &self.identity {
            Some((cert, key)) => {
                let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<Vec<_>, _>>().ok()?;
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key).ok()?).ok()
            }
            None => Some(builder.with_no_client_auth()),
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither files nor keys.
        f.debug_struct("Tls").field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// The content of the file that an option names; nothing if only the text of the URL is checked. Its path is not repeated: it may be a password in the wrong place.
fn file(address: &Address, name: &'static str, (what, mark): Pem) -> Result<Option<Vec<u8>>> {
    let Some(path) = address.option(name) else { return Ok(None) };
    if !address.reads_files() {
        return Ok(Some(Vec::new()));
    }
    let content = std::fs::read(path)
        .map_err(|error| Error::config(name, format!("the file named by {name}= cannot be read: {}", error.kind())))?;
    // A file without any would only make every certificate a stranger's.
    match content.windows(mark.len()).any(|part| part == mark.as_bytes()) {
        true => Ok(Some(content)),
        false => Err(Error::config(name, format!("the file named by {name}= holds no {what} in PEM"))),
    }
}

/// Whether the name means this host. Another program on the host may answer all the same.
fn is_here(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(all(test, feature = "rustls"))]
mod tests {
    use super::*;
    use dlock_contract::ErrorKind;

    #[test]
    fn a_file_with_a_certificate_that_cannot_be_read_is_refused() {
        let bad = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
        let error = Tls { mode: TlsMode::Verify, ca: Some(bad), identity: None }.client_config().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "ca"), "{error}");
        Tls { mode: TlsMode::Verify, ca: None, identity: None }.client_config().unwrap();
    }
}
