//! Opens a connection to one server: host name, socket, TLS, and the limit on the size of its answers.
//!
//! The client crate could do all of this but the limit. It reads an answer of any size into memory, even before the
//! login, and looks up a name for each connection. The client of a cluster opens its connections by itself, and uses
//! only the `resolver`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::socket2::SockRef;
use ::redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError};
use dlock_contract::engine::{CallerRuntime, Names};
use dlock_contract::{Error, Result};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use crate::reply::fault;
use crate::socket::bounded::Bounded;
use crate::socket::tls::{Socket, Tls};

/// A server, with all that a connection to it needs.
#[derive(Clone)]
pub(crate) struct Server {
    info: ConnectionInfo,
    tls: Option<Tls>,
    names: Arc<Names>,
}

/// A connection to it. The last clone ends it.
#[derive(Clone)]
pub(crate) struct Wire {
    /// The client, which sends requests and finds their answers.
    pub(crate) client: MultiplexedConnection,
    was_too_large: Arc<AtomicBool>,
    _driver: Arc<Driver>,
}

/// The task that reads and writes.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Server {
    pub(crate) fn new(info: ConnectionInfo, tls: Option<Tls>, names: &Arc<Names>) -> Self {
        Self { info, tls, names: names.clone() }
    }

    pub(crate) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Connects in the current runtime. The caller must bound the time.
    pub(crate) async fn open(&self, config: AsyncConnectionConfig) -> Result<Wire> {
        let place = CallerRuntime::here()?;
        let was_too_large = Arc::<AtomicBool>::default();
        let socket = Bounded::new(self.connect().await?, was_too_large.clone());
        let (client, driver) = MultiplexedConnection::new_with_config(self.info.redis_settings(), socket, config)
            .await
            .map_err(|error| fault::client(&error))?;
        Ok(Wire { client, was_too_large, _driver: Arc::new(Driver(place.spawn(driver))) })
    }

    async fn connect(&self) -> Result<Socket> {
        let failed = |error: io::Error| fault::io(&error);
        match (self.info.addr(), &self.tls) {
            (ConnectionAddr::Tcp(host, port), None) => Ok(Box::new(self.tcp(host, *port).await?)),
            (ConnectionAddr::TcpTls { host, port, .. }, Some(tls)) => {
                tls.over(self.tcp(host, *port).await?, host).await
            }
            #[cfg(unix)]
            (ConnectionAddr::Unix(path), _) => {
                Ok(Box::new(tokio::net::UnixStream::connect(path).await.map_err(failed)?))
            }
            _ => {
                let _ = failed;
                Err(Error::config("url", "the Redis URL cannot be used on this platform"))
            }
        }
    }

    async fn tcp(&self, host: &str, port: u16) -> Result<TcpStream> {
        let connect = async |address| TcpStream::connect(address).await.map_err(|error| fault::io(&error));
        let stream = self.names.connect("the Redis server", (host, port), connect).await?;
        self.set(&stream).map_err(|error| fault::io(&error))?;
        Ok(stream)
    }

    fn set(&self, stream: &TcpStream) -> io::Result<()> {
        let settings = self.info.tcp_settings();
        stream.set_nodelay(settings.nodelay())?;
        let socket = SockRef::from(stream);
        if let Some(keepalive) = settings.keepalive() {
            socket.set_tcp_keepalive(keepalive)?;
        }
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(settings.user_timeout())?;
        Ok(())
    }
}

impl Wire {
    /// Why a request on it has failed. If the request ended with its connection, the client may not have reported it.
    pub(crate) fn fault(&self, error: &RedisError) -> Error {
        if self.was_too_large.load(Ordering::Acquire) { fault::too_large() } else { fault::client(error) }
    }
}
