//! Asks the server which sessions still hold their locks.
//!
//! The server frees a lock when its session ends, and the client library reports a broken socket only when the socket
//! is used. So one connection of its own asks for all holds of the process. It also finds the holds that an operator
//! asks to break.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BootInstant, BreakRecord, HoldId, Mode, Result};
use dlock_store::background;
use futures::future::{BoxFuture, join_all};

use super::context::NamedContext;
use super::dialect::{NamedDialect, SessionId};
use super::held::Held;
use super::name::LockName;
use super::requests::run;
use crate::dialect::Value;
use crate::session_hold::monitor_connection::{LOOK_TIMEOUT, MonitorConnection};
use crate::session_hold::watched_holds::{LOOK_INTERVAL, WatchedHolds};
use crate::tables::statements::of_size;

/// The longest time from the end of a session until its holders hear of it, without the round trip.
pub(super) const LOSS_REPORT_LIMIT: Duration = Duration::from_millis(300);
/// The error of a look says that the server did not do this in time.
const ANSWER: &str = "answer the store's monitor";
/// The most sessions that one look asks directly. It asks those whose state the monitor's own connection cannot tell.
const MAX_SESSIONS_ASKED: usize = 256;

/// Knows the owner of each hold and its session, and watches the sessions.
pub(super) struct SessionMonitor<D: NamedDialect> {
    pub(super) context: Arc<NamedContext<D>>,
    pub(super) holds: WatchedHolds<Held<D>>,
    /// Our own thread alone asks over it: a caller that nobody polls would keep it locked.
    pub(super) connection: MonitorConnection<D>,
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
        let connection = MonitorConnection::new(&context.clock, connect, conn, String::new());
        Self { context: context.clone(), holds: WatchedHolds::new(), connection }
    }

    /// Looks at the holds for as long as the store lives.
    pub(super) async fn watch(self: Arc<Self>) {
        let interval = |held: &Held<D>| held.is_held().then_some(LOOK_INTERVAL);
        self.holds.watch(&self.context.clock, interval, || self.look_around()).await;
    }

    /// Looks once at all holds that are old enough. Ends the sessions that the server has ended, and gives up broken
    /// holds.
    async fn look_around(&self) {
        let clock = &self.context.clock;
        let now = clock.now();
        let due = self.holds.take_due(now, Held::is_held);
        let (holds, watched): (Vec<_>, Vec<_>) =
            due.iter().map(|held| (Arc::downgrade(held), Watched::of(held))).unzip();
        drop(due);
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

    /// Whether the session held this lock when this was called, or later.
    pub(super) async fn sees(self: &Arc<Self>, held: &Held<D>) -> bool {
        let (monitor, watched) = (self.clone(), [Watched::of(held)]);
        let looking = on_our_thread(async move { Ok(monitor.look(&watched).await) });
        looking.await.is_ok_and(|seen| seen == [HoldStatus::Holds])
    }

    /// When the session of a hold was last active, as the server reports it. `None` if the session does not have the
    /// hold. Also `None` if the monitor's connection is younger than the session's last answer to us: the server may
    /// have restarted in between.
    pub(super) async fn hears(self: &Arc<Self>, held: &Held<D>) -> Option<BootInstant> {
        let (monitor, lock, session) = (self.clone(), held.lock.clone(), held.session().clone());
        let asking = async move {
            let asked = monitor.context.clock.now();
            let about = [(lock, session.id())];
            let asking = monitor.connection.ask(&monitor.context.dialect, ANSWER, &about, |dialect, conn, holds| {
                Box::pin(async move {
                    let activity = dialect.activity(conn, holds[0].1.number).await?;
                    Ok((activity, dialect.hold_all(conn, holds).await?))
                })
            });
            let ((activity, holds), answering) = asking.await?;
            let activity = activity.filter(|_| holds == [true] && answering.opened <= session.heard());
            Ok(activity.map(|activity| session.heard_by_others(activity, asked)))
        };
        on_our_thread(asking).await.ok().flatten()
    }

    async fn look(&self, watched: &[Watched]) -> Vec<HoldStatus> {
        let about = (self, watched);
        let asking = self.connection.ask(&self.context.dialect, ANSWER, &about, |_, conn, (monitor, watched)| {
            Box::pin(monitor.standings(conn, watched))
        });
        let Ok((Standings { held, broken }, answering)) = asking.await else {
            return vec![HoldStatus::Unknown; watched.len()];
        };
        let mut broken: HashMap<_, _> = broken.into_iter().collect();
        let judge = |(watched, held): (&Watched, bool)| match (broken.remove(&watched.id), held) {
            // The row names the hold, so no other hold can be meant.
            (Some(record), _) => HoldStatus::Broken(record),
            (None, false) => HoldStatus::Ended,
            // The session has not answered since the monitor connected. If the server has restarted, another session
            // may have its number now.
            (None, true) if watched.heard < answering.opened => HoldStatus::Unknown,
            (None, true) => HoldStatus::Holds,
        };
        watched.iter().zip(held).map(judge).collect()
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
    pub(super) async fn close(self: &Arc<Self>) {
        let monitor = self.clone();
        let closing = async move {
            monitor.connection.close(&monitor.context.dialect).await;
            Ok(())
        };
        let clock = &self.context.clock;
        let _ = clock.timeout_at(clock.now().after(LOOK_TIMEOUT), on_our_thread(closing)).await;
    }
}

/// A look compares its answers with the time of the connection, and needs no id of the server.
fn connect<D: NamedDialect>(dialect: &D) -> BoxFuture<'_, Result<(D::Conn, String)>> {
    Box::pin(async { Ok((dialect.connect_named().await?.0, String::new())) })
}

/// Runs a request on our thread. It ends if its caller goes away.
pub(super) async fn on_our_thread<T: Send + 'static>(
    request: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    background()?.run(request).await?
}

impl<D: NamedDialect> std::fmt::Debug for SessionMonitor<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionMonitor").finish_non_exhaustive()
    }
}
