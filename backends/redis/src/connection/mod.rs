//! Connections: one for each runtime that asks, opened there and polled in place; our own thread is one of them.

mod after;
mod cluster;
mod ended;
mod left;
mod looks;
mod open;
mod renewals;
mod silence;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ::redis::{Cmd, ServerErrorKind, ToRedisArgs, Value};
use dlock_contract::{Claim, Clock, Error, PerRuntime, Result};
use tokio::runtime::Id;
use tokio::sync::Notify;

use super::combine::{Ahead, Answers, Combiner};
use super::guards::Guards;
use super::layout::{self, Name};
use super::native::Native;
use super::scripts::{Lua, SCRIPTS};
use super::target::Target;
use super::topology::cluster::ClusterWay;
use super::topology::{Address, ClusterPlan, Plan, SharedClient};
pub(super) use ended::Ended;
use left::{Left, Named};
use looks::Looked;
pub(super) use open::{config, words};
use renewals::Beside;
use silence::AwaitsAnswer;

/// Opening takes no longer: a firewall that swallows packets would hold it for minutes.
pub const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// The highest token is noted in steps of so many.
pub(super) const HIGH_STEP: u64 = 1024;

/// All connections to one server.
pub struct Connections {
    /// Which one of this process's stores.
    store: u64,
    /// Where the server is.
    pub target: Target,
    /// The clock of the registry.
    pub clock: Clock,
    pub(super) guards: Arc<Guards>,
    pub(super) native: Native,
    /// The highest token that this process has seen, or up to a step less.
    high: AtomicU64,
    open: PerRuntime<Arc<Connection>>,
    left: Arc<Left>,
    /// For renewals.
    beside: Beside,
    /// Has there ever been a connection to a primary?
    was_open: AtomicBool,
    /// How many times another server became the primary: what was opened before leads to the wrong one.
    switches: AtomicU64,
    /// Says so to those who wait for it.
    switched: Notify,
    /// Where the primary was found last, by whoever has to ask for it.
    primary: Mutex<Option<Address>>,
    /// Of a cluster.
    client: Arc<SharedClient>,
}

/// One connection, shared by all tasks of its runtime.
// Aligned: see `registry::Shared`.
#[repr(align(128))]
pub struct Connection {
    runtime: Id,
    way: Way,
    /// As [`Connections::switches`] when it was opened.
    switches: u64,
    /// Set by the client when the server has hung up, so that an idle connection's end costs no failed request.
    dead: Arc<AtomicBool>,
    /// Since when a request has waited that was given up or is late, unless answers have come since; in nanoseconds, else
    /// 0.
    silent_since: AtomicU64,
    looked: Looked,
    named: Arc<Named>,
    left: Arc<Left>,
}

/// How requests get to their server.
enum Way {
    Server(Arc<Combiner>),
    Cluster(Box<ClusterWay>),
}

thread_local! {
    /// The connection that this thread used last, by store and runtime: most requests find theirs here, without a
    /// lock that all threads share. Weak, so that it keeps no connection open.
    static LATEST: RefCell<Option<(u64, Id, Weak<Connection>)>> = const { RefCell::new(None) };
}

impl Connections {
    /// Opens nothing yet.
    pub fn new(target: Target, clock: Clock) -> Self {
        static STORES: AtomicU64 = AtomicU64::new(0);
        let store = STORES.fetch_add(1, Ordering::Relaxed);
        Self {
            store,
            guards: Arc::new(Guards::new(&target.settings)),
            native: Native::default(),
            target,
            clock,
            high: AtomicU64::new(0),
            open: PerRuntime::new(),
            left: Arc::default(),
            beside: Beside::default(),
            switches: AtomicU64::new(0),
            was_open: AtomicBool::new(false),
            switched: Notify::new(),
            primary: Mutex::default(),
            client: Arc::default(),
        }
    }

    /// The present runtime's connection, opened if there is none that lives.
    pub async fn here(self: &Arc<Self>) -> Result<Arc<Connection>> {
        match self.latest() {
            Some(connection) if self.is_usable(&connection) && !self.left.any() => Ok(connection),
            _ => Box::pin(self.find()).await,
        }
    }

    async fn find(self: &Arc<Self>) -> Result<Arc<Connection>> {
        let open = || {
            let all = self.clone();
            self.open.get(move || async move { all.connect().await })
        };
        let mut connection = open().await?.value;
        if !self.is_usable(&connection) && !self.serves_still(&connection).await {
            self.discard(&connection);
            connection = open().await?.value;
        }
        self.end_left(&connection).await;
        let latest = (self.store, connection.runtime, Arc::downgrade(&connection));
        // A thread that is ending has no such place any more, and needs none.
        let _ = LATEST.try_with(|place| place.replace(Some(latest)));
        Ok(connection)
    }

    fn latest(&self) -> Option<Arc<Connection>> {
        let here = dlock_contract::engine::here()?;
        let found = LATEST.try_with(|place| match &*place.borrow() {
            Some((store, runtime, connection)) if (*store, *runtime) == (self.store, here) => connection.upgrade(),
            _ => None,
        });
        found.ok().flatten()
    }

    /// The connection of that runtime, if it is open still.
    pub(super) fn of(&self, runtime: Id) -> Option<Arc<Connection>> {
        let connection = self.open.peek(runtime)?.value;
        let current = connection.switches == self.switches();
        (current && !connection.is_dead()).then_some(connection)
    }

    pub(super) fn is_usable(&self, connection: &Connection) -> bool {
        let is_left = matches!(&connection.way, Way::Cluster(way) if !self.client.is(way.number));
        connection.switches == self.switches() && connection.is_usable(&self.clock) && !is_left
    }

    fn discard(&self, connection: &Arc<Connection>) {
        self.left.add(&connection.named);
        if !connection.dead.swap(true, Ordering::Relaxed) {
            self.guards.ended(self.clock.now());
        }
        // Another one may have taken its place already.
        if let Some(opened) = self.open.peek(connection.runtime).filter(|opened| Arc::ptr_eq(&opened.value, connection))
        {
            self.open.discard(&opened);
        }
    }

    /// Ends all connections.
    pub fn close(&self) {
        self.open.clear();
        self.beside.close();
        self.client.close();
    }

    /// How many times another server became the primary.
    pub(super) fn switches(&self) -> u64 {
        self.switches.load(Ordering::Acquire)
    }

    /// Ends when another server becomes the primary.
    pub(super) async fn switched(&self, since: u64) {
        loop {
            let mut news = std::pin::pin!(self.switched.notified());
            // Before the look, so that none falls between.
            news.as_mut().enable();
            if self.switches() != since {
                return;
            }
            news.await;
        }
    }

    /// Leaves the present primary, if it is not this one.
    pub(super) fn follow(&self, primary: &Address) {
        let mut known = self.primary.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_some_and(|known| known != primary) {
            *known = Some(primary.clone());
            drop(known);
            tracing::warn!(server = ?self.target, "another Redis has become the primary; all connections begin anew");
            self.guards.replaced(self.clock.now());
            self.switches.fetch_add(1, Ordering::AcqRel);
            self.switched.notify_waiters();
            self.open.clear();
            self.left.forget();
            self.beside.leave();
        }
    }

    /// Is it a cluster?
    pub(super) fn cluster(&self) -> Option<&ClusterPlan> {
        match &self.target.plan {
            Plan::Cluster(cluster) => Some(cluster),
            _ => None,
        }
    }

    /// No token that was seen so far is above this one. In a cluster the counters of the slots run by the clocks of
    /// different servers, and nothing follows from the tokens of one for another.
    pub(super) fn high(&self) -> u64 {
        if self.cluster().is_some() {
            return 0;
        }
        self.high.load(Ordering::Relaxed).saturating_add(HIGH_STEP)
    }

    /// Was the token given before ones that this process had seen by the time of `high`?
    pub(super) fn is_behind(token: u64, high: u64) -> bool {
        token.saturating_add(HIGH_STEP) <= high
    }

    /// Notes a token.
    pub fn saw(&self, token: u64) {
        // Not each one: a place that all threads write to is slow.
        if self.cluster().is_none() && token >= self.high() {
            self.high.fetch_max(token, Ordering::Relaxed);
        }
    }

    /// Sends one command; an error of the server is an answer.
    pub async fn command(&self, connection: &Arc<Connection>, command: Cmd) -> Result<Value> {
        let wait = AwaitsAnswer::new(connection, &self.clock);
        let (look, ahead) = self.look_ahead(connection, wait.since);
        let answer = match &connection.way {
            Way::Server(way) => way.one(command, ahead).await,
            Way::Cluster(way) => Box::pin(way.one(&command)).await,
        };
        wait.answered();
        noted(look).await;
        let answer = answer.inspect_err(|_| self.failed(connection))?;
        self.check_role(connection, &answer)?;
        Ok(answer)
    }

    /// Sends commands in one go; an error of the server is an answer of its command.
    pub async fn pipeline(
        &self,
        connection: &Arc<Connection>,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> Result<Answers> {
        match &connection.way {
            Way::Server(way) => self.all_of(connection, |ahead| way.all(commands, ahead)).await,
            Way::Cluster(way) => self.all_of(connection, |_| Box::pin(way.all(commands))).await,
        }
    }

    /// Sends a command that may win a lock, and draws a token after it; gives both answers.
    pub(super) async fn drawing(&self, connection: &Arc<Connection>, command: Cmd) -> Result<Answers> {
        match &connection.way {
            Way::Server(way) => self.all_of(connection, |ahead| way.drawing(command, ahead)).await,
            Way::Cluster(way) => self.all_of(connection, |_| Box::pin(way.drawing(&command))).await,
        }
    }

    /// Runs the release script on a lock, or several such releases in one; 2 for one that was left to be released alone.
    pub(super) async fn release(&self, connection: &Arc<Connection>, claim: &Claim) -> Result<Value> {
        let answer = match &connection.way {
            Way::Server(way) => {
                let wait = AwaitsAnswer::new(connection, &self.clock);
                let answer = way.release(claim).await;
                wait.answered();
                let answer = answer.inspect_err(|_| self.failed(connection))?;
                self.check_role(connection, &answer)?;
                answer
            }
            Way::Cluster(_) => Value::Int(2),
        };
        if answer != Value::Int(2) && !is_unknown_script(&answer) {
            return Ok(answer);
        }
        let script = self.script(connection, &SCRIPTS.release, |command| {
            on(command, Name(&claim.key)).arg(layout::Value(claim));
        });
        Box::pin(script).await
    }

    async fn all_of<F: Future<Output = Result<impl Into<Answers>>>>(
        &self,
        connection: &Arc<Connection>,
        request: impl FnOnce(Option<Ahead>) -> F,
    ) -> Result<Answers> {
        let wait = AwaitsAnswer::new(connection, &self.clock);
        let (look, ahead) = self.look_ahead(connection, wait.since);
        let answers = request(ahead).await;
        wait.answered();
        noted(look).await;
        let answers = answers.inspect_err(|_| self.failed(connection))?.into();
        answers.iter().try_for_each(|answer| self.check_role(connection, answer))?;
        Ok(answers)
    }

    /// Runs a script by its digest; by its text, which the server then keeps, if it does not know it. That is safe:
    /// unknown means that nothing has run.
    pub async fn script(&self, connection: &Arc<Connection>, lua: &Lua, build: impl Fn(&mut Cmd)) -> Result<Value> {
        if let Way::Cluster(way) = &connection.way {
            return Box::pin(way.script(lua, &build)).await;
        }
        let answer = self.command(connection, call(lua, false, &build)).await?;
        if !is_unknown_script(&answer) {
            return Ok(answer);
        }
        Box::pin(self.command(connection, call(lua, true, &build))).await
    }

    /// Sends a command to the server, or to each primary of a cluster; what each answers, with its address.
    pub(super) async fn everywhere(&self, connection: &Arc<Connection>, command: Cmd) -> Result<Vec<(String, Value)>> {
        match &connection.way {
            Way::Cluster(way) => way.everywhere(command).await,
            Way::Server(_) => Ok(vec![(String::new(), self.command(connection, command).await?)]),
        }
    }

    /// A cluster's client repairs its connections by itself; it is given up where a server is silent.
    fn failed(&self, connection: &Arc<Connection>) {
        if matches!(connection.way, Way::Server(_)) {
            self.discard(connection);
        }
    }

    /// A primary that has become a replica stays one on this connection; the next one may lead to the new primary.
    ///
    /// # Errors
    /// If another server has become the primary since the request left: what the old one has granted counts nowhere.
    fn check_role(&self, connection: &Arc<Connection>, answer: &Value) -> Result<()> {
        if matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::ReadOnly)) {
            self.discard(connection);
        }
        if connection.switches != self.switches() {
            return Err(Error::outage("another Redis has become the primary"));
        }
        Ok(())
    }
}

/// Ends when what a request's look has found is noted.
async fn noted(look: Option<looks::Look>) {
    if let Some(look) = look {
        // An error is the end of its runtime, and so of the connection.
        let _ = look.await;
    }
}

/// A call of a script, without the number of its keys and what follows: `build` adds them.
pub fn call(lua: &Lua, whole: bool, build: &impl Fn(&mut Cmd)) -> Cmd {
    let mut command = Cmd::with_capacity(7, if whole { lua.text.len() + 512 } else { 320 });
    if whole {
        command.arg("EVAL").arg(&lua.text);
    } else {
        command.arg("EVALSHA").arg(&lua.digest);
    }
    build(&mut command);
    command
}

/// Does the server not know the script?
pub fn is_unknown_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

/// Adds the one key of a script.
pub fn on(command: &mut Cmd, key: impl ToRedisArgs) -> &mut Cmd {
    command.arg(1).arg(key)
}
