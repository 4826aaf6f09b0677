//! A connection to the agent, with TLS or plain.

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection whose kind is known at run time alone.
pub(super) type Socket = Box<dyn Stream>;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
