//! The store: its nodes, and how it is opened.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Durability, Error, ErrorKind, Fencing, Health, LockKey, Owner, Profile, Queue, Result, TtlRange, WakeStyle,
};
use dlock_store::{Address, Clock, line};

use dlock_redis::internal::probe_claim;

use super::identity::Roster;
use super::node::{Link, Node};
use super::nodes::{FORM, MIN_TTL, Nodes, majority};
use super::round;
use super::round::Patience;
use super::streaks::{MOST_HOLDS, Streaks};
use super::tally::shortage;

/// The ttl of the lock that a readiness probe takes. In a shorter one a busy node has no time to answer.
const PROBE_TTL: Duration = Duration::from_secs(30);

/// Locks in a majority of several Redis servers.
pub struct Redlock {
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) is_literal: bool,
    /// This process, among those that wait for a lock.
    pub(super) process: Arc<str>,
    pub(super) streaks: Streaks,
    pub(super) profile: Profile,
    pub(super) clock: Clock,
}

impl Redlock {
    /// Connects to `redlock://[user:password@]host[:port],host[:port],host[:port][/db][?max_ttl=60s]`: an odd number of
    /// independent primaries, three at least, five as a rule. A minority may be down.
    ///
    /// User, password and database are the same for all nodes. `max_ttl` is the longest ttl that any program uses on
    /// these nodes, and must be the same for all; it is how long a node stays without a vote after a restart.
    /// `eviction=allow` accepts servers that may evict locks when their memory is full; `keys=literal` shares locks with
    /// foreign clients, under the [names](dlock_contract::LockKey::literal) that they write.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid) for a URL that cannot be used, an even number of
    /// nodes, and two names of one server; what [`Redis::connect`](dlock_redis::Redis::connect) fails with, for any
    /// node that answers; [`ErrorKind::Outage`](dlock_contract::ErrorKind::Outage) if fewer than a majority answer.
    pub async fn connect(url: &str, clock: &Clock) -> Result<Self> {
        Self::connect_to(&Address::parse(url, &FORM)?, clock).await
    }

    pub(super) async fn connect_to(address: &Address, clock: &Clock) -> Result<Self> {
        let Nodes { targets, max_ttl, is_literal } = Nodes::of(address)?;
        // Our thread runs the timers that bound what follows.
        dlock_store::background()?;
        let roster = Arc::new(Roster::new(targets.len(), max_ttl));
        let node = |(number, target)| Arc::new(Node::new(number, target, clock, &roster));
        let nodes = targets.into_iter().enumerate().map(node).collect();
        let profile = profile(max_ttl).with(|redlock| redlock.any_key = !is_literal);
        let process = Owner::fresh()?.to_hex().get(..16).unwrap_or_default().into();
        let redlock = Self { nodes, is_literal, process, streaks: Streaks::default(), profile, clock: clock.clone() };
        redlock.meet().await?;
        redlock.open_for_renewals().await?;
        Ok(redlock)
    }

    /// Opens the connections of the renewals to come, on our own thread: a node that lets nobody in later, since it is full
    /// or its password has changed, still renews.
    async fn open_for_renewals(&self) -> Result<()> {
        let nodes = self.nodes.clone();
        let open = async move {
            let mut answers = round::ask(&nodes, 0..nodes.len(), Patience::FIRST, |_, _| async { Ok(()) })?;
            // Which nodes cannot be reached has been said.
            while answers.next().await.is_some() {}
            Ok(())
        };
        dlock_store::background()?.run(open).await?
    }

    /// The key under which the nodes keep this one.
    pub(super) fn named(&self, key: &LockKey) -> Result<LockKey> {
        if self.is_literal { key.literal() } else { Ok(key.clone()) }
    }

    /// The form of this program's locks. A lock of a single server, on one of the nodes, is another one.
    fn form(&self) -> &'static str {
        if self.is_literal { "by redlock:// with keys=literal" } else { "by redlock:// without keys=literal" }
    }

    /// Asks all nodes for a sign of life, and for the other forms in which programs lock there. A minority may be down, and
    /// is a finding.
    pub(super) async fn health(&self) -> Result<Health> {
        let nodes = self.nodes.len();
        let form = self.form();
        let sign = move |node: Arc<Node>, _: Arc<Link>| async move { node.note_form(form).await };
        let mut answers = round::ask(&self.nodes, 0..nodes, Patience::SIGN, sign)?;
        let (mut health, mut unable) = (Health::new(), Vec::new());
        while let Some((number, answer)) = answers.next().await {
            match answer {
                // Most nodes find the same.
                Ok(found) => {
                    for text in found {
                        if !health.findings.contains(&text) {
                            health = health.finding(text);
                        }
                    }
                }
                Err(why) => {
                    let node = self.nodes.get(number).map_or_else(String::new, |node| format!("{node:?}"));
                    health = health.finding(format!("the node {node} cannot vote: {}", why.error));
                    unable.push(why);
                }
            }
        }
        if nodes - unable.len() < majority(nodes) {
            return Err(shortage(nodes, &unable).error);
        }
        // They answer, but they may be without votes.
        let claim = Arc::new(probe_claim(self.profile.ttl.max.min(PROBE_TTL))?);
        match self.attempt(&claim, Queue::Leave).await? {
            Attempt::Acquired(hold) => self.free(&hold).await.map(|_| health),
            other => {
                Err(Error::new(ErrorKind::Protocol, format!("a lock that nobody else wants was refused: {other:?}")))
            }
        }
    }

    /// Looks at all nodes once: what is wrong with one of them is said now, and not when the others fail.
    async fn meet(&self) -> Result<()> {
        let nodes = self.nodes.len();
        let form = self.form();
        let meet = move |node: Arc<Node>, _: Arc<Link>| async move { node.note_form(form).await };
        let mut answers = round::ask(&self.nodes, 0..nodes, Patience::FIRST, meet)?;
        let mut unable = Vec::new();
        while let Some((number, met)) = answers.next().await {
            match met {
                Ok(_) => {}
                Err(why) if !why.error.is_retryable() => return Err(why.error.again()),
                Err(why) => {
                    let (host, error) = (format!("{:?}", self.nodes.get(number)), why.error.to_string());
                    line(
                        move || tracing::warn!(host, %error, "a Redlock node cannot be reached; the others are a majority as long as they stay"),
                    );
                    unable.push(why);
                }
            }
        }
        if nodes - unable.len() < majority(nodes) { Err(shortage(nodes, &unable).error) } else { Ok(()) }
    }
}

fn profile(max_ttl: Duration) -> Profile {
    Profile::new("redlock", TtlRange::new(MIN_TTL, max_ttl).in_steps_of(Duration::from_millis(1))).with(|redlock| {
        redlock.fencing = Fencing::MonotonicUnlessFailover;
        // Each question goes to all nodes, so less often than to one; the end of a lease is known besides.
        redlock.wake = WakeStyle::Poll { from: Duration::from_millis(50), to: Duration::from_secs(2) };
        redlock.holds_in_a_row = Some(MOST_HOLDS);
        // The time for some rounds of split votes among the waiters.
        redlock.takeover_delay = Duration::from_secs(1);
        // One node may restart; all of them together forget.
        redlock.durability = Durability::Memory;
    })
}
