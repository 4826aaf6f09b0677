//! A connection that was not made, as an error that says what to write. The servers' own codes are the dialects' business.

use std::io;

use dlock_contract::{Error, ErrorKind};

/// The error for a failure below the server's own errors, when a connection to this kind of server was to be made.
///
/// # Errors
/// Any other error, as it came.
pub fn not_connected(product: &str, error: sqlx::Error) -> Result<Error, sqlx::Error> {
    let told = match &error {
        sqlx::Error::Io(error) => Error::outage(match error.kind() {
            io::ErrorKind::ConnectionRefused => format!(
                "nobody listens for {product} there (connection refused); check the host and the port, and whether {product} runs"
            ),
            // A path, and no host, leads to a Unix socket.
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                format!(
                    "the Unix socket of {product} cannot be opened; check `socket`, its rights, and whether {product} runs"
                )
            }
            // A failure in rustls comes as `InvalidData`. Its text is about certificates and versions.
            io::ErrorKind::InvalidData => format!(
                "TLS with {product} failed: {error}; check that `ca` has the authority that signs the server's certificate, and \
                 that the port is one of {product}"
            ),
            _ => format!(
                "no connection to {product} could be made, or it ended before the login; check the host, and that the port is one of \
                 {product}"
            ),
        }),
        sqlx::Error::Protocol(_) => Error::new(
            ErrorKind::Protocol,
            format!("the server's answer is not in {product}'s protocol; check that the port is one of {product}"),
        ),
        // The cause may quote a file.
        sqlx::Error::Tls(_) => {
            return Ok(Error::new(
                ErrorKind::Unsupported { need: "TLS at the server, and files of the right kind".into() },
                format!(
                    "{product} does not speak TLS there, or a file named by ca, cert or key cannot be used; turn TLS on at the \
                     server, or write tls=off on a network that nobody else can read"
                ),
            ));
        }
        _ => return Err(error),
    };
    Ok(told.because(error))
}
