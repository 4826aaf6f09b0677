//! The store: how it is opened.

use std::sync::Arc;

use dlock_contract::{Profile, Result};
use dlock_store::Clock;
use dlock_store::{Run, background};

use super::context::NamedContext;
use super::dialect::NamedDialect;
use super::left_sessions::LeftSessions;
use super::monitor::{LOSS_REPORT_LIMIT, SessionMonitor};
use super::shared::NamedShared;
use super::shared_sessions::SharedSessions;
use super::statements::NamedStatements;
use super::sweep::sweep;
use crate::connection::answer::{Retries, answered};
use crate::connection::closed::Closed;
use crate::connection::collisions::Collisions;
use crate::connection::sweeps::sweep_for_ever;
use crate::session_hold::profile::profile;
use crate::settings::Settings;
use crate::ways::{Way, Ways};

/// Locks that belong to a session, which the server frees when the session ends.
#[derive(Debug)]
pub struct NamedLock<D: NamedDialect> {
    pub(super) shared: Arc<NamedShared<D>>,
    pub(super) profile: Profile,
    /// They end with the store.
    _tasks: [Run<()>; 3],
}

impl<D: NamedDialect> NamedLock<D> {
    /// Opens the store: connects once, and makes the tables if they are missing.
    ///
    /// # Errors
    /// If the dialect finds something wrong with the server, the account or the tables.
    pub async fn open(dialect: D, settings: Settings, clock: &Clock) -> Result<Self> {
        let statements = NamedStatements::new(&dialect);
        let common = crate::tables::statements::LeaseStatements::new(dialect.words());
        let profile = profile(dialect.words().kind, dialect.named_words().longest_ttl, LOSS_REPORT_LIMIT)
            .with(|profile| profile.any_key = !settings.is_literal)
            .with(|profile| profile.read_write = statements.read_write.is_some());
        let context = Arc::new(NamedContext {
            dialect,
            clock: clock.clone(),
            settings,
            statements,
            common,
            collisions: Collisions::default(),
            left_sessions: LeftSessions::default(),
            closed: Closed::default(),
        });
        let prepared = context.clone();
        // On our thread: the connection becomes the monitor's, and must not end with the caller's runtime.
        let preparing = background()?.run(async move {
            let preparing = async {
                let (mut conn, _) = prepared.dialect.connect_named().await?;
                let mut retries = Retries::new();
                loop {
                    let tables = prepared.dialect.prepare_named(&mut conn).await;
                    if !retries.open_again(&prepared.clock, &prepared.collisions, &prepared.dialect, &tables).await {
                        return tables.map(|()| conn);
                    }
                }
            };
            answered(&prepared.clock, preparing).await
        });
        let conn = preparing.await??;
        let monitor = Arc::new(SessionMonitor::new(&context, conn));
        let shared = Arc::new(NamedShared {
            ways: Arc::new(Ways::new(Way::Named, if context.settings.is_literal { "literal" } else { "" })),
            pending_attempts: Arc::default(),
            sessions: Arc::new(SharedSessions::new(&context)),
            looking: Arc::default(),
            monitor: monitor.clone(),
            context,
        });
        let watch = background()?.run(monitor.clone().watch());
        let end_left = background()?.run(monitor.end_each_left());
        let sweep_every = shared.context.settings.sweep_every;
        let sweep = background()?.run(sweep_for_ever(clock.clone(), sweep_every, Arc::downgrade(&shared), sweep));
        Ok(Self { shared, profile, _tasks: [watch, end_left, sweep] })
    }
}
