//! Opens a connection to one server: host name, socket, TLS, and the limit on the size of its answers.
//!
//! The client crate could do all of this but the limit. It reads an answer of any size into memory, even before the
//! login, and looks up a name for each connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::socket2::SockRef;
use ::redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError};
use dlock_contract::{Error, Result};
use dlock_store::{CallerRuntime, Names};
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;
    use crate::lock::store::Redis;
    use crate::topology::target::Target;
    use crate::url::form::FORM;
    use dlock_store::{Address, Clock};

    static BEGUN: AtomicUsize = AtomicUsize::new(0);

    fn hangs(_: &str) -> io::Result<Vec<SocketAddr>> {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    }

    /// The application's threads stay free: its pool has one.
    #[test]
    fn a_look_up_that_hangs_is_begun_once_for_each_name_of_a_store() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        for (url, names) in [
            ("redis://name.invalid", 1),
            ("redis-sentinel://a.invalid,b.invalid,c.invalid/main", 3),
            ("redis-cluster://a.invalid,b.invalid", 2),
        ] {
            let before = BEGUN.load(Ordering::SeqCst);
            let names_of_store = Arc::new(Names::by(hangs));
            runtime.block_on(async {
                let clock = Clock::system();
                for _ in 0..20 {
                    let target = Target::of(&Address::parse(url, &FORM).unwrap(), &names_of_store).unwrap();
                    let end = clock.now().after(Duration::from_millis(20));
                    assert!(clock.timeout_at(end, Redis::open(target, &clock)).await.is_none(), "{url}");
                }
                let free = tokio::task::spawn_blocking(|| 1);
                let end = clock.now().after(Duration::from_secs(10));
                clock.timeout_at(end, free).await.expect("the application's thread is taken").unwrap();
            });
            assert_eq!(BEGUN.load(Ordering::SeqCst) - before, names, "{url}");
        }
    }
}
