//! The store: how it is opened, and how a lock is taken and freed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dlock_contract::{
    Attempt, Claim, Error, ErrorKind, Hold, Profile, Queue, Released, Result, RunsOn, Signal, Validity, Wake,
};
use dlock_store::Clock;
use dlock_store::{Run, background};

use super::aside::{ask_aside, failed};
use super::dialect::RowDialect;
use super::held::HeldRow;
use super::life::Life;
use super::monitor::{LOSS_REPORT_LIMIT, RowMonitor};
use super::record::{mixes, mode_number};
use super::sessions::RowSessions;
use super::shared::RowShared;
use super::statements::RowStatements;
use super::sweep::sweep;
use super::taking::{AskedSession, Found};
use crate::connection::answer::{Retries, answered};
use crate::connection::pool::Pool;
use crate::connection::session::StoreContext;
use crate::connection::sweeps::sweep_for_ever;
use crate::dialect::Value;
use crate::session_hold::profile::profile;
use crate::settings::Settings;
use crate::tables::row_table::RowTable;
use crate::ways::{Way, Ways};

/// How often sessions without a hold are looked at.
const TIDY_INTERVAL: Duration = Duration::from_secs(5);

/// Locks that are rows which transactions keep locked.
#[derive(Debug)]
pub struct RowLock<D: RowDialect> {
    pub(super) shared: Arc<RowShared<D>>,
    pub(super) profile: Profile,
    /// Tasks that end with the store.
    _tasks: [Run<()>; 3],
}

impl<D: RowDialect> RowLock<D> {
    /// Opens the store: connects, makes dlock's tables if they are missing, and looks at the table that has the rows.
    ///
    /// # Errors
    /// If the dialect finds something wrong with the server, the account or the tables.
    pub async fn open(dialect: D, table: RowTable, settings: Settings, clock: &Clock) -> Result<Self> {
        let profile = profile(dialect.words().kind, dialect.row_words().longest_ttl, LOSS_REPORT_LIMIT).with(|row| {
            row.any_key = !table.is_own;
            row.read_write = true;
            row.runs_on = RunsOn::OwnThread;
        });
        let statements = Arc::new(RowStatements::new(&dialect));
        let common = crate::tables::statements::LeaseStatements::new(dialect.words());
        let context = StoreContext::new(dialect, common, settings, clock);
        let (prepared, of) = (context.clone(), table.clone());
        // On our thread: all connections live there, and must not end with the caller's runtime.
        let preparing = background()?.run(async move {
            let preparing = async {
                let (mut conn, server) = prepared.dialect.connect().await?;
                let mut retries = Retries::new();
                let found = loop {
                    let found = prepared.dialect.prepare_row(&mut conn, &of).await;
                    if !retries.open_again(&prepared.clock, &prepared.collisions, &prepared.dialect, &found).await {
                        break found?;
                    }
                };
                Ok((conn, server, found, Pool::here(&prepared, prepared.settings.max_connections)?))
            };
            answered(&prepared.clock, preparing).await
        });
        let (conn, server, (kind, place), pool) = preparing.await??;
        let monitor = Arc::new(RowMonitor::new(&context, &table, conn, server));
        let shared = Arc::new(RowShared {
            statements,
            table,
            kind,
            ways: Arc::new(Ways::new(Way::Row, &place)),
            pending_attempts: Arc::default(),
            sessions: Arc::new(RowSessions::new(&context)),
            pool,
            monitor: monitor.clone(),
            context,
        });
        let watch = background()?.run(monitor.watch());
        let sweep_every = shared.context.settings.sweep_every;
        let sweep = background()?.run(sweep_for_ever(clock.clone(), sweep_every, Arc::downgrade(&shared), sweep));
        let tidy = background()?.run(tidy_for_ever(Arc::downgrade(&shared)));
        Ok(Self { shared, profile, _tasks: [watch, sweep, tidy] })
    }
}

impl<D: RowDialect> RowShared<D> {
    pub(super) async fn attempt(self: &Arc<Self>, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        if let Some(held) = self.monitor.holds.held_by(&claim.owner) {
            let (shared, asked) = (self.clone(), held.clone());
            let confirming = ask_aside(async move { shared.confirm(&asked).await })?;
            if let Some(from) = confirming.await.unwrap_or_else(|_| Err(failed()))? {
                let validity = Validity::new(from, claim.ttl);
                return Ok(Attempt::Acquired(Hold::new(claim.clone(), held.token, validity)?.with_session(held)));
            }
        }
        self.agree(claim).await?;
        if let Some(held) = self.ask(claim).await? {
            return Ok(Attempt::Acquired(hold_of(held, claim)?));
        }
        let held_by = self.refused_by(claim).await?;
        let Queue::Join { until, .. } = queue else { return Ok(Attempt::Contended(Wake::poll().held_by(held_by))) };
        let (shared, claim) = (self.clone(), claim.clone());
        let wake = Wake::on(async move {
            let held = shared.wait(&claim, until).await?;
            held.map_or(Ok(Signal::Ask), |held| hold_of(held, &claim).map(Signal::Granted))
        });
        Ok(Attempt::Contended(wake.held_by(held_by)))
    }

    /// Asks for the row without waiting. The request runs to its end, even if its caller has gone. If it then wins the
    /// row, the row is rolled back. While a table's definition is being changed, the server gives no answer. Then the
    /// session is ended.
    async fn ask(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Option<Arc<HeldRow<D>>>> {
        let (shared, claim) = (self.clone(), claim.clone());
        let pending_attempt = self.pending_attempts.begin(claim.owner);
        let asking = ask_aside(async move {
            let session = AskedSession::default();
            let found = shared.bounded(shared.take(&claim, None, &session)).await;
            shared.end_asked(&session, &claim);
            (found, pending_attempt)
        })?;
        let (found, _pending_attempt) = asking.await.map_err(|_| failed())?;
        Ok(match found? {
            Found::Held(held) => Some(held),
            Found::Busy => None,
        })
    }

    /// Notes the way of the key's namespace in the table. Fails if the table has another way.
    async fn agree(&self, claim: &Arc<Claim>) -> Result<()> {
        if self.ways.has(&claim.key) {
            return Ok(());
        }
        let (ways, claim) = (self.ways.clone(), claim.clone());
        self.pool.run(move |session| Box::pin(async move { session.agree(&ways, &claim.key).await })).await
    }

    /// The note of the first holder of a lock that was refused.
    ///
    /// # Errors
    /// If it is held in a mode of another family.
    async fn refused_by(&self, claim: &Claim) -> Result<Option<dlock_contract::Note>> {
        let rows = self.records(&claim.key).await?;
        let family = mode_number(claim.mode);
        if let Some(other) = rows.iter().find(|record| !mixes(record.mode, family)) {
            let text = format!("the key is held in another lock mode, by {}", other.holder.note);
            return Err(Error::new(ErrorKind::KeyConflict, text).with_key(claim.key.as_str()));
        }
        Ok(rows.into_iter().next().map(|record| record.holder.note))
    }

    /// Ends a hold; `Released` if it was held when this was called.
    pub(super) async fn free(self: &Arc<Self>, held: Arc<HeldRow<D>>) -> Result<Released> {
        let (shared, freed) = (self.clone(), held.clone());
        let undoing = ask_aside(async move {
            let undone = shared.undo(&freed).await;
            if undone.is_ok() {
                shared.monitor.holds.remove(&freed.owner, &freed);
            }
            if freed.record.is_reader {
                shared.forget(&freed);
            }
            undone
        })?;
        let answer = self.bounded(async { undoing.await.unwrap_or_else(|_| Err(failed())) }).await;
        if answer.is_ok() {
            held.advance(Life::Told);
        }
        answer
    }

    /// Deletes the record of a reader. If that fails, the sweeper does it.
    fn forget(self: &Arc<Self>, held: &HeldRow<D>) {
        let (shared, name, hold) = (self.clone(), held.record.name.clone(), held.id.hold.clone());
        let Ok(background) = background() else { return };
        background.spawn(async move {
            let statements = shared.statements.clone();
            let forgetting = shared.pool.run(move |session| {
                Box::pin(async move {
                    session.ask(&statements.forget_reader, &[Value::Text(&name), Value::Text(&hold)]).await
                })
            });
            let _ = forgetting.await;
        });
    }
}

async fn tidy_for_ever<D: RowDialect>(store: Weak<RowShared<D>>) {
    while let Some(clock) = store.upgrade().map(|store| store.context.clock.clone()) {
        clock.sleep_until(clock.now().after(TIDY_INTERVAL)).await;
        let Some(store) = store.upgrade() else { return };
        store.sessions.tidy().await;
    }
}

fn hold_of<D: RowDialect>(held: Arc<HeldRow<D>>, claim: &Arc<Claim>) -> Result<Hold> {
    Ok(Hold::new(claim.clone(), held.token, Validity::new(held.since, claim.ttl))?.with_session(held))
}
