//! Look-ups of host names: one at a time for each name of a store, shared by all callers that wait for it.
//!
//! The system's resolver blocks a thread for as long as it pleases, and nothing ends it early. So the next caller that
//! connects shares a look-up that hangs. Its thread is one of dlock's own, never one that the application needs
//! for its `spawn_blocking`.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_contract::{Error, Result};
use futures::future::Shared;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::oneshot;

use crate::own_thread::background;

/// A look-up by the system's resolver, which blocks.
type LookUp = fn(&str) -> io::Result<Vec<SocketAddr>>;

/// The addresses, or the kind of the failure.
type Answer = Result<Arc<[SocketAddr]>, io::ErrorKind>;

/// The host names of one store.
///
/// ```
/// use dlock_store::Names;
///
/// let names = Names::default();
/// let found = futures::executor::block_on(names.addresses("localhost", 6379))?;
/// assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 6379));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Names {
    look_up: LookUp,
    under_way: Arc<Mutex<HashMap<String, Shared<oneshot::Receiver<Answer>>>>>,
}

impl Default for Names {
    fn default() -> Self {
        Self::by(|host| Ok((host, 0).to_socket_addrs()?.collect()))
    }
}

impl Names {
    /// Look-ups by another resolver; for tests.
    #[must_use]
    pub fn by(look_up: LookUp) -> Self {
        Self { look_up, under_way: Arc::default() }
    }

    /// All addresses of a host. Dropping the returned future does not end the look-up.
    ///
    /// # Errors
    /// The error of the system's resolver.
    pub async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let ended = |_| Err(io::ErrorKind::Interrupted);
        let answer = self.begin(host)?.await.unwrap_or_else(ended)?;
        Ok(answer.iter().map(|address| SocketAddr::new(address.ip(), port)).collect())
    }

    /// Connects to the address of a host that answers first. All are tried at once, because one of them may lead nowhere.
    /// `server` is the host's name in an error, such as "the Redis server".
    ///
    /// # Errors
    /// An outage if the name cannot be looked up; the error of `connect` that another try cannot mend, or else the last one.
    pub async fn connect<T, F: Future<Output = Result<T>>>(
        &self,
        server: &str,
        (host, port): (&str, u16),
        connect: impl Fn(SocketAddr) -> F,
    ) -> Result<T> {
        let addresses = self.addresses(host, port).await.map_err(|error| {
            let kind = error.kind();
            Error::outage(format!(
                "the name {host} of {server} cannot be looked up ({kind}); check the host in the URL"
            ))
        })?;
        let mut tries: FuturesUnordered<_> = addresses.into_iter().map(connect).collect();
        let mut last = Error::outage(format!("the name {host} of {server} has no address; check the host in the URL"));
        while let Some(answer) = tries.next().await {
            match answer {
                Err(error) if error.is_retryable() => last = error,
                answer => return answer,
            }
        }
        Err(last)
    }

    fn begin(&self, host: &str) -> io::Result<Shared<oneshot::Receiver<Answer>>> {
        let mut under_way = lock(&self.under_way);
        if let Some(running) = under_way.get(host) {
            return Ok(running.clone());
        }
        let thread = background().map_err(|_| io::ErrorKind::Unsupported)?;
        let (sender, receiver) = oneshot::channel();
        let (look_up, entry) = (self.look_up, UnderWay { under_way: self.under_way.clone(), host: host.to_owned() });
        let answer = receiver.shared();
        under_way.insert(host.to_owned(), answer.clone());
        drop(under_way);
        thread.block(move || {
            let found = look_up(&entry.host);
            // First, so that a caller that gets the error and tries again does not find this look-up.
            drop(entry);
            // Nobody may be waiting any more.
            let _ = sender.send(found.map(Arc::from).map_err(|error| error.kind()));
        });
        Ok(answer)
    }
}

/// Takes the look-up out of the table, also if it panics.
struct UnderWay {
    under_way: Arc<Mutex<HashMap<String, Shared<oneshot::Receiver<Answer>>>>>,
    host: String,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&self.under_way).remove(&self.host);
    }
}

fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_look_up_that_hangs_is_begun_once() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let names = Names::by(|_| {
            BEGUN.fetch_add(1, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        });
        for _ in 0..20 {
            assert!(names.addresses("name.invalid", 1).now_or_never().is_none());
        }
        // The thread for it may be a moment late.
        while BEGUN.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(BEGUN.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn an_address_needs_no_look_up_and_a_failure_is_told_to_all_who_wait() {
        let names = Names::by(|_| Err(io::ErrorKind::NotFound.into()));
        let found = |host, port| futures::executor::block_on(names.addresses(host, port));
        assert_eq!(found("::1", 7).unwrap(), ["[::1]:7".parse().unwrap()]);
        for _ in 0..2 {
            assert_eq!(found("name.invalid", 7).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        let names = Names::by(|_| Ok(vec!["10.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()]));
        let found = futures::executor::block_on(names.addresses("name.invalid", 9)).unwrap();
        assert_eq!(found, ["10.0.0.1:9".parse().unwrap(), "[::1]:9".parse().unwrap()]);
    }

    #[test]
    fn the_address_that_answers_first_is_used_and_a_silent_one_hides_none() {
        let names = Names::by(|_| Ok(vec!["10.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()]));
        let connect = |answer: fn() -> Result<u16>| {
            let silent_or = move |address: SocketAddr| async move {
                if address.is_ipv4() { std::future::pending().await } else { answer() }
            };
            names.connect("the server", ("name.invalid", 9), silent_or)
        };
        assert_eq!(futures::executor::block_on(connect(|| Ok(7))).unwrap(), 7);
        let refused = || Err(Error::new(dlock_contract::ErrorKind::PermissionDenied, "refused"));
        assert_eq!(futures::executor::block_on(connect(refused)).unwrap_err().message(), "refused");
        // The silent address may still answer.
        assert!(connect(|| Err(Error::outage("down"))).now_or_never().is_none());

        let down = |address: SocketAddr| async move { Err::<(), _>(Error::outage(format!("{address} is down"))) };
        let error = futures::executor::block_on(names.connect("the server", ("name.invalid", 9), down)).unwrap_err();
        assert!(error.message().ends_with(":9 is down"), "{error}");
        let none = Names::by(|_| Ok(vec![]));
        let error = futures::executor::block_on(none.connect("the server", ("name.invalid", 9), down)).unwrap_err();
        assert_eq!(error.message(), "the name name.invalid of the server has no address; check the host in the URL");
    }
}
