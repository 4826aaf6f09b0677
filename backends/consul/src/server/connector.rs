//! Opens connections for the HTTP client: host name look-up, TCP, TLS.

use std::sync::Arc;
use std::task::{Context, Poll};

use dlock_contract::engine::Names;
use dlock_contract::{Error, Result};
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::server::settings::Settings;
use crate::server::tls::Handshake;

/// A connection, with TLS or plain.
pub(super) type Socket = Box<dyn Stream>;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Connects to the one agent of a store.
#[derive(Clone)]
pub(super) struct Connector(Arc<Route>);

struct Route {
    names: Names,
    host: String,
    port: u16,
    handshake: Option<Handshake>,
}

impl Connector {
    pub(super) fn new(settings: &Settings) -> Result<Self> {
        let name = settings.tls_name.as_deref().unwrap_or(&settings.host);
        let handshake = settings.tls.as_ref().map(|tls| Handshake::new(tls, name)).transpose()?;
        let (names, host, port) = (Names::default(), settings.host.clone(), settings.port);
        Ok(Self(Arc::new(Route { names, host, port, handshake })))
    }
}

impl Route {
    async fn connect(&self) -> Result<Socket> {
        let unknown = |error: std::io::Error| {
            Error::outage(format!("the host name of the Consul agent cannot be looked up: {}", error.kind()))
        };
        let addresses = self.names.addresses(&self.host, self.port).await.map_err(unknown)?;
        let mut last = Error::outage("the host name of the Consul agent has no address");
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // A request is one small packet, and must leave at once.
                    let _ = stream.set_nodelay(true);
                    return match &self.handshake {
                        Some(handshake) => handshake.over(stream).await,
                        None => Ok(Box::new(stream)),
                    };
                }
                Err(error) => last = Error::outage("no connection to the Consul agent").because(error),
            }
        }
        Err(last)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Socket>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let route = self.0.clone();
        Box::pin(async move { Ok(TokioIo::new(route.connect().await?)) })
    }
}
