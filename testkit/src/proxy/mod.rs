//! A TCP proxy that breaks connections on demand.
//!
//! It runs on a thread and a runtime of its own, so it works from plain tests, from paused time and beside a runtime
//! that is being shut down.
//!
//! ```no_run
//! use dlock_testkit::{Mode, Proxy, servers::shared};
//!
//! # fn main() -> Result<(), dlock_testkit::Error> {
//! let (proxy, url) = Proxy::in_front_of(&shared().redis()?)?;
//! // ... connect to `url`, then:
//! proxy.set(Mode::DropReplies);
//! # Ok(())
//! # }
//! ```

mod mode;
mod pump;
mod state;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};

use crate::error::Context;
use crate::{Error, Result};
pub use mode::Mode;
use pump::{Broken, Direction, pump};
use state::{Line, State, lock};

/// A proxy in front of one server. Dropping it closes everything.
pub struct Proxy {
    addr: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port and forwards to `target`, in mode [`Mode::Pass`].
    pub fn start(target: impl ToSocketAddrs) -> Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), target)
    }

    /// The same at an address of this machine.
    pub fn start_at(address: SocketAddr, target: impl ToSocketAddrs) -> Result<Self> {
        let target = target.to_socket_addrs().context("the proxy's target")?.next();
        let target = target.ok_or_else(|| Error::new("the proxy's target has no address"))?;
        let runtime = Builder::new_current_thread().enable_all().build().context("the proxy's runtime")?;
        // Not by the runtime: a test that is inside of another one may start proxies too.
        let listener = std::net::TcpListener::bind(address).context("the proxy's port")?;
        listener.set_nonblocking(true).context("the proxy's port")?;
        let addr = listener.local_addr().context("the proxy's port")?;
        let state = Arc::new(State {
            mode: watch::Sender::new(Mode::Pass),
            cuts: watch::Sender::new(0),
            connections: AtomicUsize::new(0),
            swallowing: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
            replies: AtomicUsize::new(0),
            bytes: [AtomicUsize::new(0), AtomicUsize::new(0)],
            lines: Mutex::default(),
            keeping: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let shared = state.clone();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, target, shared) => {}
                }
            });
            // The runtime ends here, and the connections with it.
        });
        Ok(Self { addr, state, stop: Some(stop), thread: Some(thread) })
    }

    /// Starts a proxy to the host and port of `url`; returns it and the URL that leads through it.
    pub fn in_front_of(url: &str) -> Result<(Self, String)> {
        let (mut proxies, through) = Self::in_front_of_each(url)?;
        match (proxies.pop(), proxies.is_empty()) {
            (Some(proxy), true) => Ok((proxy, through)),
            _ => Err(Error::new("the URL names several hosts, and each wants a proxy")),
        }
    }

    /// The same for a URL with several hosts, separated by commas: one proxy for each, in their order.
    pub fn in_front_of_each(url: &str) -> Result<(Vec<Self>, String)> {
        let after_scheme = url.find("://").map_or(0, |at| at + 3);
        let end = url[after_scheme..].find(['/', '?']).map_or(url.len(), |at| after_scheme + at);
        let start = url[after_scheme..end].rfind('@').map_or(after_scheme, |at| after_scheme + at + 1);
        let proxies = url[start..end].split(',').map(Self::start).collect::<Result<Vec<_>>>()?;
        let hosts: Vec<_> = proxies.iter().map(|proxy| proxy.addr.to_string()).collect();
        let through = format!("{}{}{}", &url[..start], hosts.join(","), &url[end..]);
        Ok((proxies, through))
    }

    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port of [`addr`](Self::addr).
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Sets the mode from now on. Packets that are already delayed keep their time.
    pub fn set(&self, mode: Mode) {
        self.state.replies.store(0, Ordering::SeqCst);
        self.state.mode.send_replace(mode);
        if mode == Mode::Refuse {
            self.cut();
        }
    }

    /// Resets all present connections on both sides (RST, not an orderly end). The mode stays.
    ///
    /// They are reset when it returns. Otherwise a request that is sent right afterwards may still be answered.
    pub fn cut(&self) {
        let lines: Vec<_> = lock(&self.state.lines).iter().filter_map(Weak::upgrade).collect();
        self.state.cuts.send_modify(|cuts| *cuts += 1);
        while !lines.iter().all(|line| line.is_over.load(Ordering::SeqCst)) {
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// The number of connections, including those that only the server side still has.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// How many directions of connections have swallowed something, and are dead since.
    pub fn swallowing(&self) -> usize {
        self.state.swallowing.load(Ordering::SeqCst)
    }

    /// How many times clients have sent something, over all connections.
    pub fn sent(&self) -> usize {
        self.state.sent.load(Ordering::SeqCst)
    }

    /// How many times clients were sent something since the mode was set, over all connections.
    pub fn replies(&self) -> usize {
        self.state.replies.load(Ordering::SeqCst)
    }

    /// How many bytes clients have sent, and how many they were sent, over all connections.
    pub fn bytes(&self) -> [usize; 2] {
        self.state.bytes.each_ref().map(|bytes| bytes.load(Ordering::SeqCst))
    }

    /// From now on keeps what clients send over the connections that there are, their ends included, for
    /// [`deliver`](Self::deliver). Replies come through, and connections that are made later are not concerned: a slow
    /// network beside a good one.
    pub fn keep(&self) {
        let lines: Vec<_> = lock(&self.state.lines).iter().filter_map(Weak::upgrade).collect();
        for line in &lines {
            lock(&line.kept).get_or_insert_default();
        }
        *lock(&self.state.keeping) = lines;
    }

    /// How many bytes are kept, for each of the connections that [`keep`](Self::keep) found.
    pub fn kept(&self) -> Vec<usize> {
        let kept = |line: &Arc<Line>| lock(&line.kept).as_ref().map_or(0, Vec::len);
        lock(&self.state.keeping).iter().map(kept).collect()
    }

    /// Delivers this many bytes of each connection, in the order of [`kept`](Self::kept), and still nothing more.
    pub fn deliver(&self, amounts: &[usize]) {
        for (line, amount) in lock(&self.state.keeping).iter().zip(amounts) {
            let parcel: Vec<u8> = lock(&line.kept).iter_mut().flat_map(|kept| kept.drain(..*amount)).collect();
            lock(&line.delivered).extend(parcel);
            line.news.notify_one();
        }
    }
}

impl Proxy {
    /// Delivers all that is kept, the ends of connections too, and keeps nothing more.
    pub fn deliver_all(&self) {
        for line in std::mem::take(&mut *lock(&self.state.keeping)) {
            // Together, so that nothing that is sent later comes first.
            let mut kept = lock(&line.kept);
            lock(&line.delivered).extend(kept.take().unwrap_or_default());
            drop(kept);
            line.news.notify_one();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It could only fail by a panic, which has been printed.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, state: Arc<State>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        state.connections.fetch_add(1, Ordering::SeqCst);
        let state = state.clone();
        // Before the task starts, so that no cut from now on passes it by, and no wish to keep.
        let cuts = state.cuts.subscribe();
        let line = Arc::new(Line::default());
        let mut lines = lock(&state.lines);
        lines.retain(|line| line.strong_count() > 0);
        lines.push(Arc::downgrade(&line));
        drop(lines);
        tokio::spawn(async move {
            connection(client, target, &state, &line, cuts).await;
            line.is_over.store(true, Ordering::SeqCst);
            state.connections.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn connection(
    mut client: TcpStream,
    target: SocketAddr,
    state: &State,
    line: &Line,
    mut cuts: watch::Receiver<u64>,
) {
    if state.mode() == Mode::Refuse {
        return reset(&client);
    }
    let connected = tokio::select! {
        _ = cuts.changed() => None,
        connected = TcpStream::connect(target) => connected.ok(),
    };
    let Some(mut server) = connected else { return reset(&client) };
    // Small packets must not wait for each other.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ended = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let both = async {
            tokio::try_join!(
                pump(from_client, to_server, Direction::ToServer(line), state),
                pump(from_server, to_client, Direction::ToClient, state),
            )
        };
        tokio::select! {
            _ = cuts.changed() => Err(Broken),
            ended = both => ended.map(drop),
        }
    };
    if ended.is_err() {
        reset(&client);
        reset(&server);
    }
}

/// Makes the close that follows a reset.
fn reset(stream: &TcpStream) {
    // It fails only on a socket that is dead already.
    let _ = stream.set_zero_linger();
}
