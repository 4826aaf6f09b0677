//! A connection that was not made, as an error that says what to write. The servers' own codes are the dialects' business.

use std::io;

use dlock_contract::{Error, ErrorKind};

/// The error for a failure below the server's own errors, when a connection to a server of this name was to be made. None for any
/// other error.
pub fn not_connected(product: &str, error: &sqlx::Error) -> Option<Error> {
    let check = "check the host and the port";
    let outage = |text: String| Some(Error::outage(text));
    match error {
        sqlx::Error::Io(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => outage(format!(
                "nobody listens for {product} there (connection refused); {check}, and whether {product} runs"
            )),
            // A failure in rustls comes as `InvalidData`. Its text is about certificates and versions.
            io::ErrorKind::InvalidData => outage(format!(
                "TLS with {product} failed: {error}; check that `ca` has the authority that signs the server's certificate, and \
                 that the port is one of {product}"
            )),
            kind => outage(format!(
                "the connection to {product} ended before the login ({kind}); {check}, and that the port is one of {product}"
            )),
        },
        sqlx::Error::Protocol(_) => Some(Error::new(
            ErrorKind::Protocol,
            format!("the server's answer is not in {product}'s protocol; check that the port is one of {product}"),
        )),
        sqlx::Error::Tls(_) => Some(Error::new(
            ErrorKind::Unsupported { need: "TLS at the server, and files of the right kind".into() },
            format!(
                "{product} does not speak TLS there, or a file named by ca, cert or key cannot be used; turn TLS on at the server, or \
                 write tls=off on a network that nobody else can read"
            ),
        )),
        _ => None,
    }
}
