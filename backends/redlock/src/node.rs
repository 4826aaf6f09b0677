//! One node and its connections. Opening a connection does not delay the callers that use another one.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::redis::{Cmd, Value};
use dlock_contract::{BootInstant, Error, ErrorKind, Origin, Result};
use dlock_store::{CallerRuntime, Clock, PerRuntime};
use futures::FutureExt;
use futures::future::Shared;
use tokio::sync::oneshot;

use super::identity::{NodeIdentity, Roster};
use super::scripts::SCRIPTS;
use dlock_redis::internal::connection::{Connection, Connections};
use dlock_redis::internal::scripts::Lua;
use dlock_redis::internal::{Announced, Target};
use dlock_redis::internal::{check, fault};

/// A server that votes.
pub(super) struct Node {
    number: usize,
    connections: Arc<Connections>,
    links: PerRuntime<Arc<Link>>,
    opening: Mutex<HashMap<Origin, Opening>>,
    roster: Arc<Roster>,
    /// When the latest request left that was answered, in nanoseconds.
    last_seen: AtomicU64,
    announced: Arc<Announced>,
}

/// A connection to one run of a server: a restart always ends it.
pub(super) struct Link {
    connection: Arc<Connection>,
    votes_from: BootInstant,
    /// Whether the node's counter was raised to its clock since it has a vote. Its restart may have taken tokens from
    /// it that it kept.
    is_above_clock: AtomicBool,
    announced: Arc<Announced>,
    node: Arc<str>,
}

impl Link {
    /// Whether a grant of this server counts, if the request was sent at `sent`.
    pub(super) fn votes(&self, sent: BootInstant) -> bool {
        let votes = sent >= self.votes_from;
        if votes {
            self.announced
                .announce_end(&self.node, "a Redlock node votes again: the locks that it may have lost have ended");
        }
        votes
    }

    pub(super) fn is_above_clock(&self) -> bool {
        self.is_above_clock.load(Ordering::Relaxed)
    }

    /// Whether a request that is sent at `sent` must raise the node's counter.
    pub(super) fn raises(&self, sent: BootInstant) -> bool {
        !self.is_above_clock() && sent >= self.votes_from
    }

    /// Such a request was answered.
    pub(super) fn raised(&self) {
        self.is_above_clock.store(true, Ordering::Relaxed);
    }
}

/// A link on its way.
#[derive(Clone)]
pub(super) struct Opening {
    pub(super) since: BootInstant,
    link: Shared<oneshot::Receiver<Result<Arc<Link>, Arc<Error>>>>,
}

impl Opening {
    pub(super) async fn done(self) -> Result<Arc<Link>, Arc<Error>> {
        let runtime_ended = |_| Err(Arc::new(Error::outage("the runtime in which a connection was opened has ended")));
        self.link.await.unwrap_or_else(runtime_ended)
    }
}

impl Node {
    pub(super) fn new(number: usize, target: Target, clock: &Clock, roster: &Arc<Roster>) -> Self {
        Self {
            number,
            // The roster decides which node has a vote.
            connections: Arc::new(Connections::new(target.unguarded(), clock.clone())),
            links: PerRuntime::new(),
            opening: Mutex::default(),
            roster: roster.clone(),
            last_seen: AtomicU64::new(0),
            announced: Arc::default(),
        }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.connections.clock
    }

    /// The link of that runtime, if it is open and lives.
    pub(super) fn link_of(&self, runtime: Origin) -> Option<Arc<Link>> {
        let link = self.links.peek(runtime)?.value;
        link.connection.is_usable(self.clock()).then_some(link)
    }

    /// A link that lives, of any runtime.
    pub(super) fn any_link(&self) -> Option<Arc<Link>> {
        self.links.all().into_iter().find(|link| link.connection.is_usable(self.clock()))
    }

    /// Opens the current runtime's link, in a task of its own. If the caller gives up, the next caller finds the link.
    pub(super) fn open(self: &Arc<Self>, place: &CallerRuntime) -> Opening {
        let origin = place.origin();
        let (sender, link) = oneshot::channel();
        let opening = Opening { since: self.clock().now(), link: link.shared() };
        {
            let mut under_way = self.under_way();
            if let Some(present) = under_way.get(&origin) {
                return present.clone();
            }
            under_way.insert(origin, opening.clone());
        }
        let entry = Entry { node: self.clone(), origin };
        // Outside of the lock: a runtime that is being shut down drops the task, and so the entry, on the spot.
        place.spawn(async move {
            let opened = entry.node.opened().await;
            // First, so that a caller that hears of a failure and tries again does not find this entry.
            drop(entry);
            // The caller may be gone.
            let _ = sender.send(opened.map_err(Arc::new));
        });
        opening
    }

    async fn opened(self: &Arc<Self>) -> Result<Arc<Link>> {
        if let Some(broken) = CallerRuntime::here().ok().and_then(|place| self.links.peek(place.origin())) {
            if broken.value.connection.is_usable(self.clock()) {
                return Ok(broken.value);
            }
            self.links.discard(&broken);
        }
        let node = self.clone();
        // The URL has several nodes, and the text says which of them is meant.
        let named = |error: Error| {
            let no_tls = "Redlock speaks no TLS, so name a port without it";
            error.advise(&[("rediss://", no_tls)]).advise(&[("", &format!("this is the node {self:?}"))])
        };
        Ok(self.links.get(|| async move { node.meet().await }).await.map_err(named)?.value)
    }

    /// Connects, and reads the identity of the server.
    async fn meet(&self) -> Result<Arc<Link>> {
        let connection = self.connections.here().await?;
        check::check_and_warn(&self.connections).await?;
        let mut config = ::redis::cmd("CONFIG");
        config.arg("GET").arg("appendonly").arg("appendfsync");
        let load = |lua: &Lua| {
            let mut load = ::redis::cmd("SCRIPT");
            load.arg("LOAD").arg(&lua.text);
            load
        };
        let scripts = [&SCRIPTS.take, &SCRIPTS.confirm, &SCRIPTS.abandon].map(load);
        let first = [::redis::cmd("INFO"), config].into_iter().chain(scripts);
        let answers = self.connections.pipeline(&connection, first).await?;
        let [info, config, ..] = &answers[..] else { return Err(fault::unexpected(&Value::Nil)) };
        let last_seen = BootInstant::from_nanos(self.last_seen.load(Ordering::Relaxed));
        let identity = NodeIdentity::read(info, config)?;
        let votes_from = self.roster.admit(self.number, identity, self.clock().now(), last_seen)?;
        let (node, announced) = (format!("{self:?}").into(), self.announced.clone());
        let wait = votes_from.since(self.clock().now());
        if !wait.is_zero() {
            announced.begins(&node, wait, "a Redlock node may have lost locks; it has no vote until they have ended");
        }
        let is_above_clock = AtomicBool::new(false);
        Ok(Arc::new(Link { connection, votes_from, is_above_clock, announced, node }))
    }

    /// Runs a script.
    pub(super) async fn script(&self, link: &Link, lua: &Lua, build: impl Fn(&mut Cmd)) -> Result<Value> {
        let sent = self.clock().now();
        let answer = self.connections.script(&link.connection, lua, build).await?;
        self.saw(sent);
        Ok(answer)
    }

    /// Sends commands in one go.
    pub(super) async fn pipeline(&self, link: &Link, commands: impl IntoIterator<Item = Cmd>) -> Result<Vec<Value>> {
        let sent = self.clock().now();
        let answers = self.connections.pipeline(&link.connection, commands).await?;
        self.saw(sent);
        Ok(answers.into_vec())
    }

    fn saw(&self, sent: BootInstant) {
        self.last_seen.fetch_max(sent.as_nanos(), Ordering::Relaxed);
    }

    /// Notes the form of this program's locks, and reports the other forms that programs use on this server.
    pub(super) async fn note_form(&self, form: &str) -> Result<Vec<String>> {
        match self.connections.note_form(form).await {
            // An account for literal names alone may be without the key of the forms.
            Err(error) if *error.kind() == ErrorKind::PermissionDenied => Ok(Vec::new()),
            found => found,
        }
    }

    /// Notes a token: whatever the server forgets, its counter begins above it at the next connection.
    pub(super) fn note(&self, token: u64) {
        self.connections.saw(token);
    }

    pub(super) fn close(&self) {
        self.links.close();
        self.connections.close();
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<Origin, Opening>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.connections.target, f)
    }
}

/// Takes the opening out of the table, also when its runtime ends first.
struct Entry {
    node: Arc<Node>,
    origin: Origin,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.node.under_way().remove(&self.origin);
    }
}
