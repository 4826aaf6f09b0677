//! Opens connections for the HTTP client: host name look-up, TCP, TLS.

use std::sync::Arc;
use std::task::{Context, Poll};

use dlock_contract::{Error, Result};
use dlock_store::Names;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::server::settings::Settings;
use crate::server::socket::Socket;
use crate::server::tls::Handshake;

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
        let connect = async |address| {
            let connected = TcpStream::connect(address).await;
            connected.map_err(|error| {
                let text = format!("no connection to the Consul agent ({})", error.kind());
                Error::outage(text).because(error)
            })
        };
        let stream = self.names.connect("the Consul agent", (&self.host, self.port), connect).await?;
        // A request is one small packet, and must leave at once.
        let _ = stream.set_nodelay(true);
        match &self.handshake {
            Some(handshake) => handshake.over(stream).await,
            None => Ok(Box::new(stream)),
        }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpSocket;

    use super::*;

    /// A port of 127.0.0.2, and the same of 127.0.0.1, whose queue of connections is full: the next ones get no answer.
    #[tokio::test]
    async fn a_silent_address_of_the_name_does_not_hide_the_others() {
        let (live, silent) = loop {
            let live = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
            let silent = TcpSocket::new_v4().unwrap();
            // Another program may have the port there.
            if silent.bind(([127, 0, 0, 1], live.local_addr().unwrap().port()).into()).is_ok() {
                break (live, silent);
            }
        };
        let port = live.local_addr().unwrap().port();
        let silent = silent.listen(0).unwrap();
        let mut waiting = Vec::new();
        let connect = || tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(("127.0.0.1", port)));
        while let Ok(connected) = connect().await {
            waiting.push(connected.unwrap());
        }
        let names = Names::by(|_| Ok(vec!["127.0.0.1:0".parse().unwrap(), "127.0.0.2:0".parse().unwrap()]));
        let route = Route { names, host: "agent.invalid".into(), port, handshake: None };
        let connected = tokio::time::timeout(Duration::from_secs(20), route.connect()).await;
        connected.expect("the silent address was waited for").unwrap();
        drop((silent, live));
    }
}
