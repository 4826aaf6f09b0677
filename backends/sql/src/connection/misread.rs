//! Answers on which the client library panics, as on one of another kind of server, or one with a wrong length.
//!
//! A panic would end the task that asks: that of a connection, whose callers would then wait for nobody, or that which watches all
//! holds of a store, for as long as the store lives.

use std::panic::AssertUnwindSafe;

use dlock_contract::{Error, ErrorKind};
use futures::FutureExt;

const TEXT: &str = "the client library cannot read the server's answer (it panicked); check that the port is one of this kind of server";

/// Asks. A panic of the client library is an error; nothing is known of the connection then, and it must not be used again.
pub(crate) async fn unless_misread<T, E: Misread>(asking: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    AssertUnwindSafe(asking).catch_unwind().await.unwrap_or_else(|_| Err(E::misread()))
}

/// An error that says so.
pub(crate) trait Misread {
    fn misread() -> Self;
}

impl Misread for Error {
    fn misread() -> Self {
        Self::new(ErrorKind::Protocol, TEXT)
    }
}

impl Misread for sqlx::Error {
    fn misread() -> Self {
        Self::Protocol(TEXT.into())
    }
}
