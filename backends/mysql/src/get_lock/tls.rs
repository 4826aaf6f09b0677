//! TLS: whether the connection is encrypted, and which certificate the server must have.

use std::net::IpAddr;

use dlock_contract::{Error, ErrorKind, Result};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use super::url::{decode, wrong};

/// The TLS options of a URL.
#[derive(Default)]
pub(super) struct Tls {
    mode: Option<Mode>,
    ca: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    Require,
    Verify,
}

impl Tls {
    /// Takes a parameter of the URL; false if it is none of these.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "tls" => {
                self.mode = Some(match value {
                    "off" => Mode::Off,
                    "require" => Mode::Require,
                    "verify" => Mode::Verify,
                    _ => return Err(wrong("tls is verify, require or off")),
                });
            }
            "ca" => self.ca = Some(read("ca", value)?),
            "cert" => self.cert = Some(read("cert", value)?),
            "key" => self.key = Some(read("key", value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How to connect to that host, or by a socket of this one. A host that is elsewhere must be told how.
    pub(super) fn apply(self, options: MySqlConnectOptions, host: &str, socket: bool) -> Result<MySqlConnectOptions> {
        let mode = match self.mode {
            Some(mode) => mode,
            None if socket || is_here(host) => Mode::Off,
            None => {
                return Err(wrong(
                    "say how to reach a host that is not this one: add tls=verify (and ca=/path/ca.pem for an authority \
                     of your own); with tls=require or tls=off a rogue server can have the password",
                ));
            }
        };
        if mode != Mode::Off && socket {
            return Err(wrong("a Unix socket is not encrypted: leave out tls, or name a host instead of the socket"));
        }
        if mode != Mode::Off && !cfg!(feature = "tls") {
            return Err(Error::new(
                ErrorKind::Unsupported { need: "the feature `mysql-tls`".into() },
                "TLS to MySQL and MariaDB needs the feature `mysql-tls` of dlock",
            ));
        }
        if mode != Mode::Verify && self.ca.is_some() {
            return Err(wrong("ca is only used with tls=verify"));
        }
        if mode == Mode::Off && (self.cert.is_some() || self.key.is_some()) {
            return Err(wrong("cert and key need tls=verify or tls=require"));
        }
        let mut options = options.ssl_mode(match mode {
            Mode::Off => MySqlSslMode::Disabled,
            Mode::Require => MySqlSslMode::Required,
            Mode::Verify => MySqlSslMode::VerifyIdentity,
        });
        if let Some(ca) = self.ca {
            options = options.ssl_ca_from_pem(ca);
        }
        match (self.cert, self.key) {
            (Some(cert), Some(key)) => Ok(options.ssl_client_cert_from_pem(cert).ssl_client_key_from_pem(key)),
            (None, None) => Ok(options),
            _ => Err(wrong("cert and key go together: the client's certificate and its private key")),
        }
    }
}

/// Read once, when the store is opened. The path is not echoed: it may be a password that stands in the wrong place.
fn read(name: &'static str, path: &str) -> Result<Vec<u8>> {
    let content = std::fs::read(decode(path)?)
        .map_err(|error| wrong("a file named by ca, cert or key cannot be read").because(error))?;
    let marked = |mark: &str| content.windows(mark.len()).any(|part| part == mark.as_bytes());
    let right = if name == "key" { marked("PRIVATE KEY-----") } else { marked("-----BEGIN CERTIFICATE-----") };
    match right {
        true => Ok(content),
        false => Err(wrong("a file named by ca, cert or key must hold certificates or a private key in PEM")),
    }
}

/// Whether the name means this host. Another program on the host may answer all the same.
fn is_here(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_url_with_this_host_may_leave_tls_out() {
        for (host, socket, here) in [
            ("localhost", false, true),
            ("LOCALHOST", false, true),
            ("127.0.0.1", false, true),
            ("127.8.9.1", false, true),
            ("::1", false, true),
            ("", true, true),
            ("db.example", true, true),
            ("db.example", false, false),
            ("localhost.example", false, false),
            ("0.0.0.0", false, false),
            ("10.0.0.1", false, false),
        ] {
            let applied = Tls::default().apply(MySqlConnectOptions::new(), host, socket);
            assert_eq!(applied.is_ok(), here, "{host}");
            if let Err(error) = applied {
                assert!(error.to_string().contains("add tls=verify"), "{error}");
            }
        }
    }
}
