//! The arena of one trial: a namespace in a store, connections with and without a proxy, and a fenced resource.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::backends::memory::Memory;
use dlock::{Backoff, Clock, ErrorKind, Guard, Lock, Registry, Retry};
use dlock_contract::BootInstant;
use dlock_testkit::child::Child;
use dlock_testkit::servers::Instance;
use dlock_testkit::{Mode, Proxy, Result, lateness, wait_until};
use tempfile::TempDir;

use crate::probes::{self, Probe};
use crate::resource::Resource;
use crate::store::{self, Store};

/// The ttl of nearly every lock here. Short, since trials wait for it; whole seconds, since some stores want that.
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// So much later than the ttl a dead holder's lock is granted to the next.
const GRACE: Duration = Duration::from_secs(1);

/// Time to join the queue, where nothing shows that. Were it too short, a trial would prove less.
const IN_LINE: Duration = Duration::from_millis(500);

/// Long enough for anything that is not measured.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The name of the lock that the holders take.
pub(crate) const JOB: &str = "job";

/// The server of a trial: shared, or its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Shared,
    /// To be stopped, or to be asked about all that is in it.
    Own,
    /// The same, with the settings that the server has by itself.
    AsShipped,
}

/// See the [module](self).
pub(crate) struct Arena {
    pub(crate) store: Store,
    pub(crate) namespace: String,
    /// Between the store and [`Self::far`]: one for each server.
    pub(crate) proxies: Vec<Proxy>,
    /// The trial's own, if it has any.
    pub(crate) servers: Vec<Instance>,
    pub(crate) probe: Box<dyn Probe>,
    pub(crate) resource: Resource,
    /// The words of the store, and the same through the proxies.
    pub(crate) near: String,
    pub(crate) far: String,
    memory: Arc<Memory>,
    runtime: tokio::runtime::Runtime,
    /// Also for messages between processes. Last, so that the server ends before its files are removed.
    pub(crate) folder: TempDir,
}

impl Arena {
    pub(crate) fn new(store: Store, server: Server) -> Result<Self> {
        let namespace = format!("p{:012x}", fastrand::u64(..1 << 48));
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let memory = Arc::new(Memory::new());
        let servers = match server {
            Server::Shared => Vec::new(),
            Server::Own => store.start()?,
            Server::AsShipped => store.start_as_shipped()?,
        };
        let max_ttl = if server == Server::AsShipped { "4s" } else { store::LONG };
        let url = if servers.is_empty() { store.shared_url()? } else { store.url_of(&servers, max_ttl) };
        let near = match store {
            Store::Memory => "memory://".to_owned(),
            Store::Sqlite => format!("sqlite://{}", folder.path().join("locks.db").display()),
            _ => url.unwrap(),
        };
        let near = runtime.block_on(probes::own_space(store, &near, &namespace));
        let (proxies, far) = if store.is_remote() { in_front_of(&near)? } else { (Vec::new(), near.clone()) };
        let probe = probes::probe(store, &near, &namespace, &memory);
        let resource = Resource::beside(store, &near, folder.path());
        Ok(Self { store, namespace, proxies, servers, probe, resource, near, far, memory, runtime, folder })
    }

    /// Sets the proxy mode for the traffic with all servers of the store.
    pub(crate) fn set(&self, mode: Mode) {
        self.proxies.iter().for_each(|proxy| proxy.set(mode));
    }

    /// For programs that are no trials.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Runs a trial to its end. A trial that hangs fails. On one busy core a long one took three minutes.
    pub(crate) fn run(&self, trial: impl Future<Output = ()>) {
        let ended = self.runtime.block_on(async { tokio::time::timeout(PATIENCE * 6, trial).await });
        assert!(ended.is_ok(), "the trial hung");
    }

    /// A registry with connections of its own: as good as another process.
    pub(crate) async fn near(&self) -> Registry {
        self.open(&self.near).await
    }

    /// The same, through the proxy.
    pub(crate) async fn far(&self) -> Registry {
        self.open(&self.far).await
    }

    async fn open(&self, url: &str) -> Registry {
        let registry = Registry::new();
        registry
            .configure(|defaults| {
                defaults.namespace.clone_from(&self.namespace);
                defaults.retry = patient();
            })
            .unwrap();
        if self.store == Store::Memory {
            registry.install_shared("store", self.memory.clone()).unwrap();
            registry.set_default("store").unwrap();
        } else {
            store::connect(&registry, url).await.unwrap();
        }
        registry
    }

    /// Another process, behind the proxy, in one of the roles of [`crate::holder`].
    pub(crate) fn child(&self, role: &str) -> Child {
        self.child_with(role, &[])
    }

    pub(crate) fn child_with(&self, role: &str, more: &[(&str, &str)]) -> Child {
        let own =
            [("LOCKS", self.far.as_str()), ("NAMESPACE", &self.namespace), ("RESOURCE", self.resource.url.as_str())];
        Child::spawn(role, &[&own, more].concat()).unwrap()
    }

    /// Waits until so many callers stand behind the holder of the job. A store that cannot tell gets some time instead.
    pub(crate) async fn until_waiting(&self, process: &Registry, callers: u64) {
        let waiters = async || answered(async || process.lock(JOB).holders().await).await.unwrap().waiters;
        if waiters().await.is_none() {
            return tokio::time::sleep(IN_LINE).await;
        }
        let start = Instant::now();
        let waited =
            wait_until("callers wait", async || waiters().await.is_some_and(|waiters| waiters >= callers)).await;
        // A process that stood still for longer than its ttl has lost the lock to the first of them.
        waited.unwrap_or_else(|error| panic!("{error}{}", lateness::verdict(start, TTL)));
    }

    /// The longest that a dead holder may stand in the way.
    pub(crate) fn takeover(&self) -> Duration {
        TTL + GRACE + self.store.takeover_delay()
    }

    /// Fails if the next grant took longer than is promised after the holder's end.
    #[track_caller]
    pub(crate) fn assert_in_time(&self, since: Instant) {
        lateness::assert_within(self.takeover(), since, "the next grant");
    }

    /// Fails if something of this trial's locks is still in the store when everything must have expired.
    pub(crate) async fn assert_nothing_left(&self) {
        self.assert_no_more_left_than(0).await;
    }

    /// The same, where so much is held by right.
    pub(crate) async fn assert_no_more_left_than(&self, places: usize) {
        let start = Instant::now();
        loop {
            let left = self.probe.places().await;
            if left.len() <= places {
                return;
            }
            lateness::assert_within(self.takeover(), start, &format!("the end of {left:#?} in {:?}", self.store));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Proxies in front of all servers in the words of a store.
pub(crate) fn in_front_of(words: &str) -> Result<(Vec<Proxy>, String)> {
    let [first, second, made] = words.split(' ').collect::<Vec<_>>()[..] else {
        return Proxy::in_front_of_each(words);
    };
    let ((gate, first), (authority, second)) = (Proxy::in_front_of(first)?, Proxy::in_front_of(second)?);
    Ok((vec![gate, authority], format!("{first} {second} {made}")))
}

/// A store that fails is asked again for as long as a caller waits, and soon. No trial is about the retries, and the short ttl
/// leaves a store little time for each answer.
pub(crate) fn patient() -> Retry {
    Retry { times: u32::MAX, backoff: Some(Backoff::new(Duration::from_millis(20), Duration::from_millis(200))) }
}

/// Asks again while the store does not answer in time. On a busy machine such an answer says nothing about the lock.
pub(crate) async fn answered<T>(mut request: impl AsyncFnMut() -> dlock::Result<T>) -> dlock::Result<T> {
    let start = Instant::now();
    loop {
        match request().await {
            Err(error) if *error.kind() == ErrorKind::Outage && error.is_retryable() && start.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer,
        }
    }
}

/// Asks once for a lock that another owner holds. Fails if it is granted.
pub(crate) async fn is_busy(lock: impl Fn() -> Lock) {
    let refused = tried(lock).await.map(drop).expect_err("two holders");
    assert_eq!(*refused.kind(), ErrorKind::Busy, "{refused}");
}

/// Asks once, without a wait.
pub(crate) async fn tried(lock: impl Fn() -> Lock) -> dlock::Result<Guard> {
    answered(async || lock().try_acquire().await).await
}

/// The lock that the holders take, for another process.
pub(crate) fn job(process: &Registry) -> Lock {
    process.lock(JOB).ttl(TTL).wait(dlock::Wait::UpTo(PATIENCE))
}

/// Now, on the clock that goes on while a process is stopped; the same for all processes.
pub(crate) fn now() -> BootInstant {
    Clock::system().now()
}
