//! Asks the server which sessions still hold their locks.
//!
//! The server frees a lock when its session ends, and the client library tells of a broken socket only when the socket
//! is used. So one connection of its own asks for all holds of the process, in one statement. The same statement finds
//! the holds that an operator asks to break.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dlock_contract::{BootInstant, BreakRecord, Clock, Error, HoldId, Owner, Result};
use futures::future::join_all;
use tokio::sync::Notify;

use super::link::{Link, Standings};
use super::session::Session;
use crate::server::Server;
use crate::server::fault::fault;

/// How old a hold's last look may be.
const EVERY: Duration = Duration::from_millis(250);
/// A hold that is younger is not asked about: most end before, and cost nothing.
const YOUNG: Duration = Duration::from_millis(100);
/// Within this time after the end of its session a holder is told, but for the time of a round trip.
pub(super) const TOLD: Duration = Duration::from_millis(300);
/// How long one look may take, connecting included.
const LOOK: Duration = Duration::from_secs(1);
/// How many sessions are asked themselves in one look, where the monitor cannot vouch for them.
const ASKED: usize = 256;

/// Knows which session holds for whom, and watches them.
#[derive(Debug)]
pub(super) struct Monitor {
    server: Server,
    clock: Clock,
    table: Mutex<Table>,
    /// There is a hold again.
    wake: Notify,
    /// Between two questions. A question takes it, so one that is dropped closes the connection.
    eye: tokio::sync::Mutex<Option<Eye>>,
}

#[derive(Debug, Default)]
struct Table {
    holding: HashMap<Owner, Weak<Session>>,
    /// The watcher waits for a hold.
    idle: bool,
}

/// The monitor's own connection.
#[derive(Debug)]
struct Eye {
    link: Link,
    /// Since when. The server has not been restarted from here on.
    opened: BootInstant,
}

/// The monitor's knowledge of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Holds,
    /// An operator asks to break the hold.
    Broken(BreakRecord),
    Ended,
    Unknown,
}

/// A session as it is asked about. It does not keep the session alive: that of a dropped hold ends at once.
struct Watched {
    name: Arc<str>,
    id: u64,
    hold: HoldId,
    heard: BootInstant,
}

impl Watched {
    fn of(session: &Session) -> Self {
        Self { name: session.name.clone(), id: session.id, hold: session.hold, heard: session.heard() }
    }
}

impl Monitor {
    pub(super) fn new(server: &Server, clock: &Clock, link: Link) -> Self {
        let eye = Eye { link, opened: clock.now() };
        Self {
            server: server.clone(),
            clock: clock.clone(),
            table: Mutex::default(),
            wake: Notify::new(),
            eye: tokio::sync::Mutex::new(Some(eye)),
        }
    }

    /// From now on the session is watched, and its owner is told of it when it asks again.
    pub(super) fn add(&self, owner: Owner, session: &Arc<Session>) {
        let mut table = self.table();
        // Those of dropped holds go now and then.
        if table.holding.len() == table.holding.capacity() {
            table.holding.retain(|_, session| session.strong_count() > 0);
        }
        table.holding.insert(owner, Arc::downgrade(session));
        let idle = std::mem::take(&mut table.idle);
        drop(table);
        if idle {
            self.wake.notify_one();
        }
    }

    /// Unless the owner has another session by now.
    pub(super) fn remove(&self, owner: &Owner, session: &Session) {
        let mut table = self.table();
        if table.holding.get(owner).and_then(Weak::upgrade).is_some_and(|known| known.id == session.id) {
            table.holding.remove(owner);
        }
    }

    pub(super) fn session_of(&self, owner: &Owner) -> Option<Arc<Session>> {
        self.table().holding.get(owner)?.upgrade()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the holds for as long as the backend lives.
    pub(super) async fn watch(self: Arc<Self>) {
        loop {
            match self.next_look() {
                Some(at) => {
                    self.clock.sleep_until(at).await;
                    self.look_around().await;
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// When the first of the holds must be looked at; `None` while there are none.
    fn next_look(&self) -> Option<BootInstant> {
        let mut table = self.table();
        let living = table.holding.values().filter_map(Weak::upgrade).filter(|session| !session.has_ended());
        let next = living.map(|session| session.looked().after(EVERY)).min();
        table.idle = next.is_none();
        next
    }

    /// Looks once at all holds that are not young. Tells those whose session has ended, and gives up those that are broken.
    async fn look_around(&self) {
        let now = self.clock.now();
        let (sessions, watched): (Vec<_>, Vec<_>) = self.due(now).into_iter().unzip();
        if watched.is_empty() {
            return;
        }
        let seen = self.look(&watched).await;
        let (mut unknown, mut broken) = (Vec::new(), Vec::new());
        for (session, seen) in sessions.iter().zip(seen) {
            let Some(session) = session.upgrade() else { continue };
            match seen {
                Seen::Holds => {}
                Seen::Broken(record) => broken.push((session, record)),
                Seen::Ended => session.end(),
                Seen::Unknown => unknown.push(session),
            }
        }
        let breaking = join_all(
            broken.into_iter().map(|(session, record)| async move { session.break_off(record, &self.clock).await }),
        );
        // A request that is under way closes its link itself.
        let _ = self.clock.timeout_at(self.clock.now().after(LOOK), breaking).await;
        // Those that were heard of last a long time ago come first.
        unknown.sort_by_key(|session| session.heard());
        unknown.truncate(ASKED);
        join_all(unknown.iter().map(|session| self.ask_itself(session))).await;
    }

    /// The holds that are to be looked at now; each is noted as looked at.
    fn due(&self, now: BootInstant) -> Vec<(Weak<Session>, Watched)> {
        let table = self.table();
        let sessions = table.holding.values().filter_map(Weak::upgrade);
        let old = sessions.filter(|session| session.since().after(YOUNG) <= now && !session.has_ended());
        old.map(|session| {
            session.set_looked(now);
            (Arc::downgrade(&session), Watched::of(&session))
        })
        .collect()
    }

    /// Asks a session over its own connection.
    async fn ask_itself(&self, session: &Session) {
        let asked = session.confirm(&self.clock);
        if let Some(Ok(None)) = self.clock.timeout_at(self.clock.now().after(LOOK), asked).await {
            session.end();
        }
    }

    /// Whether the session held its lock when this was called, or later.
    pub(super) async fn sees(&self, session: &Session) -> bool {
        self.look(&[Watched::of(session)]).await == [Seen::Holds]
    }

    async fn look(&self, watched: &[Watched]) -> Vec<Seen> {
        let asking = async {
            let mut eye = self.eye.lock().await;
            let kept = eye.take();
            let (seen, standings) = self.ask(kept, watched).await?;
            let opened = seen.opened;
            *eye = Some(seen);
            Ok::<_, Error>((opened, standings))
        };
        let Some(Ok((opened, Standings { held, broken }))) =
            self.clock.timeout_at(self.clock.now().after(LOOK), asking).await
        else {
            return vec![Seen::Unknown; watched.len()];
        };
        let mut broken: HashMap<_, _> = broken.into_iter().collect();
        let judge = |(watched, held): (&Watched, bool)| match (broken.remove(&watched.hold), held) {
            // The row names the hold, so no other one can be meant.
            (Some(record), _) => Seen::Broken(record),
            (None, false) => Seen::Ended,
            // A session that has not answered since may be another one of this number, after a restart of the server.
            (None, true) if watched.heard < opened => Seen::Unknown,
            (None, true) => Seen::Holds,
        };
        watched.iter().zip(held).map(judge).collect()
    }

    /// Over the connection that is kept, or, where that has ended meanwhile, over a new one.
    async fn ask(&self, kept: Option<Eye>, watched: &[Watched]) -> Result<(Eye, Standings)> {
        let names = || watched.iter().map(|watched| (&*watched.name, watched.id));
        if let Some(mut eye) = kept
            && let Ok(standings) = eye.link.hold_all(names()).await
        {
            return Ok((eye, standings));
        }
        let mut link = Link::connect(&self.server).await?.autocommit().await?;
        let opened = self.clock.now();
        let standings = link.hold_all(names()).await.map_err(fault)?;
        Ok((Eye { link, opened }, standings))
    }

    /// Ends the monitor's connection.
    pub(super) async fn close(&self) {
        let closing = async {
            if let Some(eye) = self.eye.lock().await.take() {
                eye.link.close(&self.clock).await;
            }
        };
        let _ = self.clock.timeout_at(self.clock.now().after(LOOK), closing).await;
    }
}
