//! The sessions of a store: which one a claim uses, and how they are opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Error, ErrorKind, Health, Result, TtlRange};
use dlock_store::{Clock, background};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, join_all};
use zookeeper_client::{Client, Error as ClientError};

use super::connect::connect;
use super::lease::Lease;
use crate::server::cluster::Cluster;
use crate::server::fault::{FIRST_CONTACT, fault};
use crate::server::four_letter;
use crate::server::paths::{Paths, form};

/// The shortest session timeout that is requested. A connection must be made within a part of it, so where this takes
/// longer, twice as long a timeout is requested, up to the one that is requested last.
const SHORTEST_SESSION: Duration = Duration::from_millis(500);
const LAST_SHORTEST: Duration = Duration::from_secs(4);

/// The shortest ttl: a renewal needs a third of it for a round trip.
const SHORTEST_TTL: Duration = Duration::from_millis(250);

/// The tick of the configuration that ZooKeeper comes with.
const USUAL_TICK: Duration = Duration::from_secs(2);

/// How often all hosts are asked for their ensemble, at most, where no mark tells it.
const HOSTS_INTERVAL: Duration = Duration::from_secs(10);

/// The ttl of a session that is opened only to look at locks.
const LOOK_TTL: Duration = Duration::from_secs(10);

/// A session that is being opened, or has been opened.
type Opening = Shared<BoxFuture<'static, Result<Arc<Lease>, Arc<Error>>>>;

/// The sessions of a store.
pub(crate) struct Leases {
    cluster: Cluster,
    clock: Clock,
    range: TtlRange,
    /// How often the leader looks for sessions that have ended. A session's timeout is longer than its ttl by half of it.
    tick: Duration,
    tick_is_guessed: bool,
    shared: Mutex<SharedLeases>,
    /// By which the ensemble is known again.
    mark: Mutex<Option<Mark>>,
    /// When all hosts were asked for their ensemble, where nothing tells it from another one.
    asked_hosts: Mutex<Option<BootInstant>>,
}

/// When the note of the form was made, by the number of the transaction and by the leader's wall clock. Two ensembles have
/// not made theirs in the same millisecond.
type Mark = (i64, i64);

#[derive(Default)]
struct SharedLeases {
    by_ttl: HashMap<Duration, Opening>,
    is_closed: bool,
}

impl Leases {
    /// Measures which session timeouts the servers grant. Also returns the client of the longest session, to test the rights
    /// with it.
    pub(crate) async fn measure(cluster: Cluster, clock: &Clock) -> Result<(Arc<Self>, Client)> {
        let longest = Duration::from_millis(i32::MAX as u64);
        let long = match connect(&cluster, clock, longest).await {
            Ok(long) => long,
            Err(error) if *error.kind() == ErrorKind::Outage && is_read_only(&cluster, clock).await => {
                return Err(fault(&ClientError::NotReadOnly).because(error).advise(&FIRST_CONTACT));
            }
            Err(error) => return Err(cluster.explain(error, clock).await),
        };
        cluster.check_ensemble(clock).await?;
        let mut shortest = SHORTEST_SESSION;
        let short = loop {
            match connect(&cluster, clock, shortest).await {
                Err(error) if *error.kind() == ErrorKind::Outage && shortest < LAST_SHORTEST => shortest *= 2,
                short => break short?,
            }
        };
        let whole =
            |client: &Client| Duration::from_millis(u64::try_from(client.session_timeout().as_millis()).unwrap_or(0));
        let (min, max) = (whole(&short), whole(&long));
        // Unless configured otherwise, the shortest session timeout is two ticks and the longest twenty. Either may be configured,
        // so only the server's own word makes the tick shorter than the usual one.
        let told = four_letter::tick(cluster.plain_text_hosts(), clock).await.or(cluster.tick);
        let tick = told.unwrap_or_else(|| USUAL_TICK.max(min / 2));
        // Sessions are asked for in whole milliseconds.
        let tick = Duration::from_millis(u64::try_from(tick.as_millis()).unwrap_or(0) / 2 * 2);
        let extra = tick / 2;
        let range = TtlRange::new(min.saturating_sub(extra).max(SHORTEST_TTL), max.saturating_sub(extra));
        let range = range.in_steps_of(Duration::from_millis(1));
        let leases = Self {
            cluster,
            clock: clock.clone(),
            range,
            tick,
            tick_is_guessed: told.is_none() && max != min * 10,
            shared: Mutex::default(),
            mark: Mutex::default(),
            asked_hosts: Mutex::default(),
        };
        Ok((Arc::new(leases), long))
    }

    /// The ttls that the servers grant.
    pub(crate) fn range(&self) -> TtlRange {
        self.range
    }

    /// How often the leader looks for sessions that have ended.
    pub(crate) fn tick(&self) -> Duration {
        self.tick
    }

    /// The session that all holds with this ttl share.
    pub(crate) async fn shared(self: &Arc<Self>, ttl: Duration) -> Result<Arc<Lease>> {
        let opening = {
            let mut shared = self.openings();
            if shared.is_closed {
                return Err(Error::closed());
            }
            let shared = &mut shared.by_ttl;
            match shared.get(&ttl).filter(|present| is_usable(present)) {
                Some(present) => present.clone(),
                None => {
                    let all = self.clone();
                    let opening = async move { all.open(ttl, true).await.map_err(Arc::new) }.boxed().shared();
                    // On our thread, so that the opening goes on even if its first caller is not polled.
                    background()?.spawn(opening.clone().map(drop));
                    // The holds of a session that has ended do not need it here.
                    shared.retain(|_, present| is_usable(present) || opened(present).is_some());
                    shared.insert(ttl, opening.clone());
                    opening
                }
            }
        };
        opening.await.map_err(|error| error.again())
    }

    /// Any session, for a request that takes no lock.
    pub(crate) async fn any(self: &Arc<Self>) -> Result<Arc<Lease>> {
        let present = self.openings().by_ttl.values().find_map(opened);
        match present {
            Some(lease) => Ok(lease),
            None => self.shared(LOOK_TTL.clamp(self.range.min, self.range.max)).await,
        }
    }

    /// A session for one hold only.
    pub(crate) async fn own(&self, ttl: Duration) -> Result<Arc<Lease>> {
        if self.openings().is_closed {
            return Err(Error::closed());
        }
        let lease = self.open(ttl, false).await?;
        // The store may have been closed meanwhile.
        if self.openings().is_closed {
            lease.end();
            return Err(Error::closed());
        }
        Ok(lease)
    }

    /// Closes the shared sessions. None is opened any more, and one that is being opened is closed then.
    pub(crate) async fn close(&self) {
        let openings = {
            let mut shared = self.openings();
            shared.is_closed = true;
            std::mem::take(&mut shared.by_ttl)
        };
        let closed = openings.into_values().map(async |opening| match opening.peek() {
            Some(Ok(lease)) => lease.close().await,
            Some(Err(_)) => {}
            None => {
                let ending = opening.map(|opened| opened.map(|lease| lease.end()));
                // Without our thread there is no opening either.
                let _ = background().map(|background| background.spawn(ending.map(drop)));
            }
        });
        join_all(closed).await;
    }

    async fn open(&self, ttl: Duration, shared: bool) -> Result<Arc<Lease>> {
        let began = self.clock.now();
        // A member reports its sessions to the leader every half tick. So the leader may count a session's timeout from a time
        // that is half a tick before the request which the holder counts from.
        let asked = ttl + self.tick / 2;
        let client = connect(&self.cluster, &self.clock, asked).await?;
        if client.session_timeout() != asked {
            let TtlRange { min, max, .. } = self.range;
            let text = format!("this ZooKeeper server grants no session of {asked:?}");
            return Err(Error::new(ErrorKind::TtlOutOfRange { min, max }, text).never_sent());
        }
        if self.cluster.has_several_hosts() {
            self.check_origin(&client).await.map_err(Error::never_sent)?;
        }
        Lease::begin(client, ttl, shared, began, &self.clock)
    }

    /// Remembers by what the ensemble of this client is known again.
    pub(crate) async fn remember_ensemble(&self, client: &Client) -> Result<()> {
        let found = self.mark_of(client).await?;
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }

    /// Refuses a session of another ensemble: since the store was opened, a server may have been set up anew.
    async fn check_origin(&self, client: &Client) -> Result<()> {
        let found = self.mark_of(client).await?;
        let known = *self.mark.lock().unwrap_or_else(PoisonError::into_inner);
        if found.is_some() && found == known {
            return Ok(());
        }
        if found.is_none() && known.is_none() && !self.must_ask_hosts() {
            return Ok(());
        }
        let silent = self.cluster.check_ensemble(&self.clock).await?;
        if known.is_some() && !silent.is_empty() {
            let text = format!(
                "a ZooKeeper server does not have the node that dlock made in its ensemble, and these hosts do not \
                 answer, so it may be of another one: {}; if an operator has deleted the node, ask `ready()` once they answer",
                silent.join(", ")
            );
            return Err(Error::outage(text));
        }
        // An operator has deleted the node, and it was made anew.
        if found.is_some() {
            *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
        Ok(())
    }

    /// An account without the right to make the node has no mark. To ask all hosts at each session would cost too much.
    fn must_ask_hosts(&self) -> bool {
        let (now, mut asked) = (self.clock.now(), self.asked_hosts.lock().unwrap_or_else(PoisonError::into_inner));
        let is_due = asked.is_none_or(|asked| now.since(asked) >= HOSTS_INTERVAL);
        if is_due {
            *asked = Some(now);
        }
        is_due
    }

    async fn mark_of(&self, client: &Client) -> Result<Option<Mark>> {
        let note = Paths::form_below(&self.cluster.root, form(self.cluster.literal));
        let found = client.check_stat(&note).await.map_err(|error| fault(&error))?;
        Ok(found.map(|stat| (stat.czxid, stat.ctime)))
    }

    /// The version and role that a server reports, and whether the tick is known.
    pub(crate) async fn health(&self) -> Result<Health> {
        self.cluster.check_ensemble(&self.clock).await?;
        let mut health = four_letter::health(self.cluster.plain_text_hosts(), &self.clock).await;
        if self.tick_is_guessed {
            let tick = self.tick;
            health.findings.push(format!(
                "the servers do not tell their tickTime, so dlock takes {tick:?} for it: with a longer one, two may believe \
                 in a lock for a moment when a server dies. Write tick=… in the URL, such as tick=2s; without TLS, conf in \
                 4lw.commands.whitelist of the servers does too"
            ));
        }
        Ok(health)
    }

    fn openings(&self) -> MutexGuard<'_, SharedLeases> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a server reports that it has lost its majority. It does not answer a client that asks for a session.
async fn is_read_only(cluster: &Cluster, clock: &Clock) -> bool {
    four_letter::health(cluster.plain_text_hosts(), clock).await.role.as_deref() == Some(four_letter::READ_ONLY)
}

/// The session, if it lives.
fn opened(opening: &Opening) -> Option<Arc<Lease>> {
    opening.peek()?.as_ref().ok().filter(|lease| lease.lives()).cloned()
}

fn is_usable(opening: &Opening) -> bool {
    opening.peek().is_none_or(|opened| opened.as_ref().is_ok_and(|lease| lease.lives() && !lease.ends_soon()))
}
