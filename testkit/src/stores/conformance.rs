//! The conformance suite over one crate's stores: one trial for each store and case, so that each has its name and one can
//! be picked.
//!
//! Nothing may be skipped: a missing server is a failure.

use std::any::Any;
use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use dlock_conformance::{Case, Outage, Outcome, Report, Store, cases, closed};
use dlock_contract::{Backend, Error, Result};
use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::{Builder, Runtime};

use crate::servers::{Instance, Recipe};
use crate::{Mode, Proxy, is_thorough};

/// Opens a store, or says why that is impossible. It runs on first use: a filter that picks one store starts one server.
pub type Start = fn() -> Result<Box<dyn Store>, String>;

/// The `main` of a test target without the standard harness. It runs the suite over these stores and prints the table.
pub fn main(stores: &[(&'static str, Start)]) -> ExitCode {
    main_and(stores, &[])
}

/// The same, and over these stores too if `cargo xtask test --all` runs it: they repeat the proof over a further server.
pub fn main_and(stores: &[(&'static str, Start)], others: &[(&'static str, Start)]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    if !is_thorough() {
        // So the harness counts what is left.
        arguments.skip.extend(others.iter().map(|(name, _)| format!("{name}: ")));
    }
    // The cases wait more than they work. Beside the other tests they get fewer threads. One store gets fewer too: more cases at
    // once would use up the connections that MySQL has by default.
    let at_once = std::env::var("RUST_TEST_THREADS").ok().and_then(|number| number.parse().ok());
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let is_for_one = stores.len() == 1 || stores.iter().any(|(name, _)| filter.starts_with(&format!("{name}:")));
    arguments.test_threads.get_or_insert(at_once.unwrap_or(if is_for_one { 3 } else { 6 }));
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let runtime = Arc::new(runtime.unwrap_or_else(|error| panic!("no runtime: {error}")));
    let tested_stores: Vec<_> =
        stores.iter().chain(others).map(|&(name, start)| Arc::new(TestedStore::new(name, start, &runtime))).collect();
    let mut trials = Vec::new();
    // Each case on all stores before the next case. A case that needs its store for itself waits for the others there. With
    // one store after another, all threads would wait for such a case at once.
    for case in cases() {
        for tested_store in &tested_stores {
            let tested_store = tested_store.clone();
            trials.push(Trial::test(format!("{}: {}", tested_store.name, case.name()), move || tested_store.run(case)));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        let reports: Vec<_> = tested_stores.iter().map(|tested_store| tested_store.report()).collect();
        let tested: Vec<_> = reports.into_iter().filter(|report| !report.rows.is_empty()).collect();
        // Written past the capture of the test harness, which is meant for noise.
        let _ = writeln!(std::io::stdout(), "{}", Report::table(&tested));
    }
    // Now, not at exit: the servers end with their stores.
    drop(tested_stores);
    conclusion.exit_code()
}

struct TestedStore {
    name: &'static str,
    start: Start,
    store: OnceLock<Result<Started, String>>,
    /// Taken for writing by a case that cuts the store off or restarts it: it runs alone.
    exclusive: RwLock<()>,
    runtime: Arc<Runtime>,
    outcomes: Mutex<HashMap<&'static str, Outcome>>,
}

struct Started {
    store: Box<dyn Store>,
    /// One client for all cases: to open one for each would be a fourth of the work of a suite.
    closed: Arc<dyn Backend>,
}

impl TestedStore {
    fn new(name: &'static str, start: Start, runtime: &Arc<Runtime>) -> Self {
        Self {
            name,
            start,
            store: OnceLock::new(),
            exclusive: RwLock::default(),
            runtime: runtime.clone(),
            outcomes: Mutex::default(),
        }
    }

    fn run(&self, case: &'static Case) -> Result<(), libtest_mimic::Failed> {
        let outcome = match self.store.get_or_init(|| self.start()) {
            // A store that costs nothing: each case has its own.
            Ok(started) if started.store.in_process() => self.run_on(&self.start()?, case),
            // Said once for each case, so the end of a server's log must not be in it.
            Err(why) => Outcome::Skipped(format!("no store: {}", why.chars().take(200).collect::<String>())),
            Ok(started) if case.disturbs() => {
                let _alone = self.exclusive.write().unwrap_or_else(PoisonError::into_inner);
                self.run_on(started, case)
            }
            Ok(started) => {
                let _together = self.exclusive.read().unwrap_or_else(PoisonError::into_inner);
                self.run_on(started, case)
            }
        };
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.insert(case.name(), outcome.clone());
        if outcome.is_clean() { Ok(()) } else { Err(outcome.to_string().into()) }
    }

    fn start(&self) -> Result<Started, String> {
        let store = (self.start)()?;
        let closed = self.runtime.block_on(closed(store.as_ref())).map_err(|error| error.to_string())?;
        Ok(Started { store, closed })
    }

    fn run_on(&self, started: &Started, case: &Case) -> Outcome {
        self.runtime.block_on(case.run(started.store.as_ref(), &started.closed))
    }

    fn report(&self) -> Report {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = Report::new(self.name.into());
        for case in cases() {
            if let Some(outcome) = outcomes.get(case.name()) {
                report.add(case.name(), outcome.clone());
            }
        }
        report.require_no_skips()
    }
}

/// A private server with a proxy in front of it, for a store under test.
pub struct Served {
    instance: Arc<Instance>,
    proxy: Arc<Proxy>,
}

impl Served {
    /// Starts both.
    pub fn start(recipe: impl Recipe) -> Result<Self, String> {
        let instance = Instance::start(recipe).map_err(|error| error.to_string())?;
        let proxy = Proxy::start(instance.addr()).map_err(|error| error.to_string())?;
        Ok(Self { instance: Arc::new(instance), proxy: Arc::new(proxy) })
    }

    /// The server's URL through the proxy.
    pub fn url(&self) -> String {
        self.instance.url_at(self.proxy.port())
    }

    /// Another proxy to the same server, and the URL that leads through it.
    pub fn another_way(&self) -> Result<(Proxy, String)> {
        let proxy = Proxy::start(self.instance.addr());
        let proxy = proxy.map_err(|error| Error::outage("no further proxy").because(error))?;
        let url = self.instance.url_at(proxy.port());
        Ok((proxy, url))
    }

    /// The server itself, around the proxy.
    pub fn addr(&self) -> SocketAddr {
        self.instance.addr()
    }

    /// Asks the server itself, around the proxy.
    pub async fn ask(&self, request: String) -> Result<String> {
        let instance = self.instance.clone();
        blocking(move || instance.ask(&request)).await
    }

    /// The lines of an answer. An answer that says that there is nothing has none.
    pub async fn lines(&self, request: String) -> Result<Vec<String>> {
        let answer = self.ask(request).await?;
        let lines = answer.lines().filter(|line| !line.is_empty() && *line != "OK 0" && *line != "(nil)");
        Ok(lines.map(str::to_owned).collect())
    }

    /// For [`Store::outage`].
    pub fn outage(&self, outage: Outage) -> Option<BoxFuture<'static, Result<Box<dyn Any + Send>>>> {
        cut_off(&self.proxy, |proxy| vec![proxy], outage)
    }

    /// For [`Store::restart`].
    pub fn restart(&self) -> Option<BoxFuture<'static, Result<()>>> {
        let instance = self.instance.clone();
        Some(Box::pin(blocking(move || instance.restart())))
    }
}

/// Cuts all clients of these proxies off from the store, until the returned value is dropped. For [`Store::outage`].
pub fn cut_off<T: Send + Sync + ?Sized + 'static>(
    owner: &Arc<T>,
    proxies: fn(&T) -> Vec<&Proxy>,
    outage: Outage,
) -> Option<BoxFuture<'static, Result<Box<dyn Any + Send>>>> {
    for proxy in proxies(owner) {
        match outage {
            Outage::Refused => proxy.set(Mode::Refuse),
            Outage::Silent => proxy.set(Mode::BLACKHOLE),
            Outage::AnswerLost => proxy.set(Mode::DropReplies),
            Outage::AnswerSilent => proxy.set(Mode::Blackhole { to_server: false, to_client: true }),
            Outage::Late => proxy.keep(),
        }
    }
    let cut = CutOff { owner: owner.clone(), proxies };
    Some(Box::pin(async { Ok(Box::new(cut) as Box<dyn Any + Send>) }))
}

struct CutOff<T: ?Sized> {
    owner: Arc<T>,
    proxies: fn(&T) -> Vec<&Proxy>,
}

impl<T: ?Sized> Drop for CutOff<T> {
    fn drop(&mut self) {
        for proxy in (self.proxies)(&self.owner) {
            proxy.set(Mode::Pass);
            proxy.deliver_all();
        }
    }
}

/// Runs blocking work of the test kit beside the runtime.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> crate::Result<T> + Send + 'static) -> Result<T> {
    let done =
        tokio::task::spawn_blocking(work).await.map_err(|error| Error::outage("a task failed").because(error))?;
    done.map_err(|error| Error::outage("the server's keeper failed").because(error))
}
