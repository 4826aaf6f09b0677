//! Asks the server which sessions still hold their locks.
//!
//! The server frees a lock when its session ends, and the client library reports a broken socket only when the socket
//! is used. So one connection of its own asks for all holds of the process. It also finds the holds that an operator
//! asks to break.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dlock_contract::{BootInstant, BreakRecord, Error, HoldId, Mode, Owner, Result};
use futures::future::join_all;

use super::context::NamedContext;
use super::dialect::{NamedDialect, SessionId};
use super::held::Held;
use super::name::LockName;
use super::requests::run;
use crate::connection::misread::unless_misread;
use crate::dialect::Value;
use crate::session_hold::watched_holds::WatchedHolds;
use crate::tables::statements::of_size;

/// The longest time between two looks at a hold.
const MONITOR_INTERVAL: Duration = Duration::from_millis(250);
/// A younger hold is not looked at. Most holds end before this age, and so cost nothing.
const MIN_HOLD_AGE: Duration = Duration::from_millis(100);
/// The longest time from the end of a session until its holders hear of it, without the round trip.
pub(super) const LOSS_REPORT_LIMIT: Duration = Duration::from_millis(300);
/// How long one look may take, connecting included.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the server is asked whether a session that it should end has ended.
const END_POLL_PAUSE: Duration = Duration::from_millis(5);
/// The most sessions that one look asks directly. It asks those whose state the monitor's own connection cannot tell.
const MAX_SESSIONS_ASKED: usize = 256;

/// Knows the owner of each hold and its session, and watches the sessions.
pub(super) struct SessionMonitor<D: NamedDialect> {
    context: Arc<NamedContext<D>>,
    holds: WatchedHolds<Held<D>>,
    /// Kept here between two questions. A question takes it out, so a question that is dropped closes it.
    connection: tokio::sync::Mutex<Option<SessionMonitorConnection<D>>>,
}

/// The monitor's own connection.
struct SessionMonitorConnection<D: NamedDialect> {
    conn: D::Conn,
    /// When the connection was opened. The server has not restarted since then.
    opened: BootInstant,
}

/// The monitor's knowledge of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HoldStatus {
    Holds,
    /// An operator asks to break it.
    Broken(BreakRecord),
    Ended,
    Unknown,
}

/// The data of a hold that a look needs. It does not keep the hold alive, so a dropped hold is freed at once.
struct Watched {
    lock: LockName,
    mode: Mode,
    row: String,
    session: SessionId,
    id: HoldId,
    heard: BootInstant,
}

impl Watched {
    fn of<D: NamedDialect>(held: &Held<D>) -> Self {
        Self {
            lock: held.lock.clone(),
            mode: held.mode,
            row: held.row.clone(),
            session: held.session().id(),
            id: held.id,
            heard: held.session().heard(),
        }
    }
}

/// The answer about several holds.
struct Standings {
    /// Which sessions hold their locks, in the order of the question.
    held: Vec<bool>,
    broken: Vec<(HoldId, BreakRecord)>,
}

impl<D: NamedDialect> SessionMonitor<D> {
    /// A monitor with a connection that was opened just now.
    pub(super) fn new(context: &Arc<NamedContext<D>>, conn: D::Conn) -> Self {
        let connection = SessionMonitorConnection { conn, opened: context.clock.now() };
        Self {
            context: context.clone(),
            holds: WatchedHolds::new(),
            connection: tokio::sync::Mutex::new(Some(connection)),
        }
    }

    /// Watches the hold from now on. If its owner asks again, it gets this hold.
    pub(super) fn add(&self, held: &Arc<Held<D>>) {
        self.holds.add(held.owner, held);
    }

    /// Stops watching the hold. If its owner has another hold by now, that one stays.
    pub(super) fn remove(&self, held: &Held<D>) {
        self.holds.remove(&held.owner, held);
    }

    pub(super) fn held_by(&self, owner: &Owner) -> Option<Arc<Held<D>>> {
        self.holds.held_by(owner)
    }

    /// Looks at the holds for as long as the store lives.
    pub(super) async fn watch(self: Arc<Self>) {
        loop {
            match self.holds.next_look(|held| held.is_held().then(|| held.looked().after(MONITOR_INTERVAL))) {
                Some(at) => {
                    self.context.clock.sleep_until(at).await;
                    self.look_around().await;
                }
                None => self.holds.wait().await,
            }
        }
    }

    /// Looks once at all holds that are old enough. Ends the sessions that the server has ended, and gives up broken
    /// holds.
    async fn look_around(&self) {
        let clock = &self.context.clock;
        let now = clock.now();
        let (holds, watched): (Vec<_>, Vec<_>) = self.due(now).into_iter().unzip();
        if watched.is_empty() {
            return;
        }
        let seen = self.look(&watched).await;
        let (mut unknown, mut broken) = (Vec::new(), Vec::new());
        for (held, seen) in holds.iter().zip(seen) {
            let Some(held) = held.upgrade() else { continue };
            match seen {
                HoldStatus::Holds => {}
                HoldStatus::Broken(record) => broken.push((held, record)),
                // Only if the hold was not released meanwhile: other holds may live in the same session.
                HoldStatus::Ended if held.is_held() => held.session().end(),
                HoldStatus::Ended => {}
                HoldStatus::Unknown => unknown.push(held),
            }
        }
        let breaking =
            join_all(broken.into_iter().map(|(held, record)| async move { held.break_off(record, clock).await }));
        let _ = clock.timeout_at(clock.now().after(LOOK_TIMEOUT), breaking).await;
        // Sessions that were silent for the longest time come first.
        unknown.sort_by_key(|held| held.session().heard());
        unknown.truncate(MAX_SESSIONS_ASKED);
        join_all(unknown.iter().map(|held| clock.timeout_at(clock.now().after(LOOK_TIMEOUT), held.confirm()))).await;
    }

    /// The holds that are due for a look. Notes that each was looked at.
    fn due(&self, now: BootInstant) -> Vec<(Weak<Held<D>>, Watched)> {
        let old = self.holds.find(|held| held.since.after(MIN_HOLD_AGE) <= now && held.is_held());
        old.iter()
            .map(|held| {
                held.set_looked(now);
                (Arc::downgrade(held), Watched::of(held))
            })
            .collect()
    }

    /// Whether the session held this lock when this was called, or later.
    pub(super) async fn sees(&self, held: &Held<D>) -> bool {
        self.look(&[Watched::of(held)]).await == [HoldStatus::Holds]
    }

    /// When the session of a hold was last active, as the server reports it. `None` if the session does not have the
    /// hold. Also `None` if the monitor's connection is younger than the session's last answer to us: the server may
    /// have restarted in between.
    pub(super) async fn hears(&self, held: &Held<D>) -> Option<BootInstant> {
        let (clock, dialect, session) = (&self.context.clock, &self.context.dialect, held.session());
        let asked = clock.now();
        let asking = unless_misread(async {
            let mut connection = self.connection.lock().await;
            let Some(SessionMonitorConnection { mut conn, opened }) = connection.take() else { return Ok(None) };
            let activity = dialect.activity(&mut conn, session.id().number).await?;
            let holds = dialect.hold_all(&mut conn, &[(held.lock.clone(), session.id())]).await?;
            *connection = Some(SessionMonitorConnection { conn, opened });
            Ok::<_, sqlx::Error>(activity.filter(|_| holds == [true] && opened <= session.heard()))
        });
        let activity = clock.timeout_at(asked.after(LOOK_TIMEOUT), asking).await?.ok().flatten()?;
        Some(session.heard_by_others(activity, asked))
    }

    /// Ends the server's session of a hold, unless the hold is over. True if the server had the hold until then.
    ///
    /// This is for a session that has ended on our side without an answer to the release. A network that swallows
    /// answers may also swallow the end of the connection. The server would then keep the lock until the ttl is over.
    pub(super) async fn end_session(&self, held: &Held<D>) -> Result<bool> {
        self.ending(Some(held)).await
    }

    /// Ends the sessions that have ended only on our side, so that none of their requests arrives later.
    pub(super) async fn end_left(&self) -> Result<()> {
        if self.context.left_sessions.left().is_empty() {
            return Ok(());
        }
        self.ending(None).await.map(drop)
    }

    /// Ends each such session as soon as there is one, for as long as the store lives.
    pub(super) async fn end_each_left(self: Arc<Self>) {
        loop {
            self.context.left_sessions.wait().await;
            while self.end_left().await.is_err() {
                self.context.clock.sleep_until(self.context.clock.now().after(LOOK_TIMEOUT)).await;
            }
        }
    }

    /// Ends the session of this hold. Without a hold, ends the sessions that have ended only on our side. Uses the kept
    /// connection, or a new one if that has ended.
    async fn ending(&self, held: Option<&Held<D>>) -> Result<bool> {
        let ending = unless_misread(async {
            let mut connection = self.connection.lock().await;
            if let Some(mut kept) = connection.take()
                && let Ok(ended) = self.end_over(&mut kept.conn, held).await
            {
                *connection = Some(kept);
                return Ok(ended);
            }
            let (mut conn, _) = self.context.dialect.connect_named().await?;
            let opened = self.context.clock.now();
            let ended = self.end_over(&mut conn, held).await.map_err(|error| self.context.dialect.fault(error))?;
            *connection = Some(SessionMonitorConnection { conn, opened });
            Ok(ended)
        });
        let clock = &self.context.clock;
        let late = || Error::outage(format!("the server did not end a silent session within {LOOK_TIMEOUT:?}"));
        clock.timeout_at(clock.now().after(LOOK_TIMEOUT), ending).await.ok_or_else(late)?
    }

    /// Looks at the row first. It names the hold, so a later session of the same number is not ended.
    async fn end_over(&self, conn: &mut D::Conn, held: Option<&Held<D>>) -> sqlx::Result<bool> {
        let Some(held) = held else { return self.end_left_over(conn).await };
        let stands = &self.context.statements.holders(held.mode).stands;
        let mut is_told = false;
        for id in held.ids().map(|id| id.to_string()) {
            while !run(&self.context, conn, stands, &[Value::Text(&held.row), Value::Text(&id)]).await?.rows.is_empty()
            {
                if !std::mem::replace(&mut is_told, true) {
                    self.context.dialect.end_session(conn, held.session().id().number).await?;
                }
                self.context.clock.sleep_until(self.context.clock.now().after(END_POLL_PAUSE)).await;
            }
        }
        Ok(is_told)
    }

    async fn end_left_over(&self, conn: &mut D::Conn) -> sqlx::Result<bool> {
        let (context, mut were_left) = (&self.context, false);
        loop {
            let left = context.left_sessions.left();
            for session in &left {
                let Some(mark) = &session.mark else { continue };
                if context.dialect.end_marked(conn, mark).await? {
                    session.note_left();
                    were_left = true;
                } else {
                    context.left_sessions.remove(session);
                }
            }
            if left.is_empty() {
                return Ok(were_left);
            }
            context.clock.sleep_until(context.clock.now().after(END_POLL_PAUSE)).await;
        }
    }

    async fn look(&self, watched: &[Watched]) -> Vec<HoldStatus> {
        let asking = unless_misread(async {
            let mut connection = self.connection.lock().await;
            let kept = connection.take();
            let (seen, standings) = self.ask(kept, watched).await?;
            let opened = seen.opened;
            *connection = Some(seen);
            Ok::<_, Error>((opened, standings))
        });
        let clock = &self.context.clock;
        let Some(Ok((opened, Standings { held, broken }))) =
            clock.timeout_at(clock.now().after(LOOK_TIMEOUT), asking).await
        else {
            return vec![HoldStatus::Unknown; watched.len()];
        };
        let mut broken: HashMap<_, _> = broken.into_iter().collect();
        let judge = |(watched, held): (&Watched, bool)| match (broken.remove(&watched.id), held) {
            // The row names the hold, so no other hold can be meant.
            (Some(record), _) => HoldStatus::Broken(record),
            (None, false) => HoldStatus::Ended,
            // The session has not answered since the monitor connected. If the server has restarted, another session
            // may have its number now.
            (None, true) if watched.heard < opened => HoldStatus::Unknown,
            (None, true) => HoldStatus::Holds,
        };
        watched.iter().zip(held).map(judge).collect()
    }

    /// Asks over the kept connection, or over a new one if that has ended.
    async fn ask(
        &self,
        kept: Option<SessionMonitorConnection<D>>,
        watched: &[Watched],
    ) -> Result<(SessionMonitorConnection<D>, Standings)> {
        if let Some(mut connection) = kept
            && let Ok(standings) = self.standings(&mut connection.conn, watched).await
        {
            return Ok((connection, standings));
        }
        let (mut conn, _) = self.context.dialect.connect_named().await?;
        let opened = self.context.clock.now();
        let standings = self.standings(&mut conn, watched).await.map_err(|error| self.context.dialect.fault(error))?;
        Ok((SessionMonitorConnection { conn, opened }, standings))
    }

    async fn standings(&self, conn: &mut D::Conn, watched: &[Watched]) -> sqlx::Result<Standings> {
        let context = &self.context;
        let holds: Vec<_> = watched.iter().map(|watched| (watched.lock.clone(), watched.session)).collect();
        let held = context.dialect.hold_all(conn, &holds).await?;
        if held.len() != watched.len() {
            return Err(sqlx::Error::Protocol("the server did not answer for each hold".into()));
        }
        let (exclusive, read_write): (Vec<_>, Vec<_>) =
            watched.iter().partition(|watched| watched.mode == Mode::Exclusive);
        let mut broken = Vec::new();
        for of_family in [exclusive, read_write] {
            broken.extend(self.broken(conn, &of_family).await?);
        }
        Ok(Standings { held, broken })
    }

    /// Which of these holds of one family an operator asks to break.
    async fn broken(&self, conn: &mut D::Conn, watched: &[&Watched]) -> sqlx::Result<Vec<(HoldId, BreakRecord)>> {
        let (context, mut broken) = (&self.context, Vec::new());
        let Some(first) = watched.first() else { return Ok(broken) };
        let statements = &context.statements.holders(first.mode).broken;
        let largest = statements.last().map_or(1, |(size, _)| *size);
        for watched in watched.chunks(largest) {
            let (size, statement) = of_size(statements, watched.len());
            let names = (0..size).map(|place| Value::Text(&watched[place.min(watched.len() - 1)].row));
            let rows = run(context, conn, statement, &names.collect::<Vec<_>>()).await?.rows;
            for row in &rows {
                if let [hold, record, ..] = &row[..]
                    && let Ok(id) = hold.text().parse()
                {
                    broken.push((id, BreakRecord::from_stored(record.text())));
                }
            }
        }
        Ok(broken)
    }

    /// Ends the monitor's connection.
    pub(super) async fn close(&self) {
        let closing = async {
            if let Some(connection) = self.connection.lock().await.take() {
                self.context.dialect.close(connection.conn).await;
            }
        };
        let clock = &self.context.clock;
        let _ = clock.timeout_at(clock.now().after(LOOK_TIMEOUT), closing).await;
    }
}

impl<D: NamedDialect> std::fmt::Debug for SessionMonitor<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionMonitor").finish_non_exhaustive()
    }
}
