//! Opens a connection: to which server, with which limits, and with which first requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use ::redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, ServerErrorKind, Value};
use dlock_contract::{Error, ErrorKind, Result};
use dlock_store::{CallerRuntime, Seldom};

use crate::cluster::servers::Servers;
use crate::cluster::way::ClusterWay;
use crate::combine::combiner::Combiner;
use crate::connections::connection::{Connection, Way};
use crate::connections::looks::Looked;
use crate::connections::pool::Connections;
use crate::connections::rights;
use crate::connections::stale::ClientName;
use crate::layout::token::FENCE;
use crate::quarantine::history::{QUESTIONS, ServerDescription};
use crate::reply::fault;
use crate::scripts::call::{call, words};
use crate::scripts::exclusive::{ExclusiveScripts, SCRIPTS};
use crate::socket::ended::Ended;
use crate::socket::options::{OPEN_LIMIT, config};
use crate::socket::server::Wire;
use crate::topology::target::Plan;

impl Connections {
    async fn connect_cluster(&self, servers: &Arc<Servers>) -> Result<Arc<Connection>> {
        let place = CallerRuntime::here()?;
        servers.find().await?;
        let way = ClusterWay::new(servers.clone(), self.clock.clone(), self.quarantine.clone());
        Ok(Arc::new(Connection {
            runtime: place.origin(),
            way: Way::Cluster(Box::new(way)),
            switches: 0,
            dead: Arc::default(),
            silent_since: AtomicU64::new(0),
            looked: Looked::default(),
            named: Arc::default(),
            stale: self.stale.clone(),
        }))
    }

    pub(crate) async fn connect(&self) -> Result<Arc<Connection>> {
        if let Some(servers) = self.cluster() {
            return self.connect_cluster(servers).await;
        }
        let place = CallerRuntime::here()?;
        let switches = self.switches();
        let runtime = place.origin();
        let dead = Arc::new(AtomicBool::new(false));
        let ended = Arc::<Ended>::default();
        let (died, says, quarantine, clock) =
            (dead.clone(), ended.clone(), self.quarantine.clone(), self.clock.clone());
        let (named, stale) = (Arc::<ClientName>::default(), self.stale.clone());
        let (of_ended, own) = (stale.clone(), named.clone());
        let wire = self
            .dial(config().set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    of_ended.add(&own);
                    died.store(true, Ordering::Relaxed);
                    quarantine.ended(clock.now());
                    says.tell();
                }
                Ok::<(), ::redis::aio::SendError>(())
            }))
            .await?;
        let mut opened = wire.clone();
        let way = Way::Server(Arc::new(Combiner::new(wire, ended, place)));
        let (silent_since, looked) = (AtomicU64::new(0), Looked::at(self.clock.now()));
        let connection = Arc::new(Connection { runtime, way, switches, dead, silent_since, looked, named, stale });
        let mut first = ::redis::pipe();
        first.cmd("ROLE");
        for question in QUESTIONS {
            first.add_command(words(question));
        }
        let ExclusiveScripts { ask, look, release, release_all, release_to, abandon, renew, renew_all, .. } = &*SCRIPTS;
        for lua in [ask, look, release, release_all, release_to, abandon, renew, renew_all] {
            first.cmd("SCRIPT").arg("LOAD").arg(&lua.text);
        }
        first.add_command(words(&["CLIENT", "INFO"]));
        first.add_command(call(&SCRIPTS.seed, true, &|command: &mut Cmd| {
            command.arg(1).arg(FENCE).arg(self.high());
        }));
        let answers = self.bounded(opened.client.send_packed_commands(&first, 0, first.len())).await?;
        let answers = answers.map_err(|error| opened.fault(&error))?;
        if let Err(error) = check_first(&answers) {
            if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported { .. }) {
                // The error of a script does not name the refused command. So ask for the missing rights.
                let asked = self.bounded(opened.client.send_packed_command(&rights::question(false, false))).await?;
                let host = format!("{:?}", self.target);
                rights::judge(&asked.map_err(|error| opened.fault(&error))?, Some(&host))?;
            }
            return Err(self.passing(error));
        }
        if let [.., info, _] = &answers[..] {
            connection.named.name(info);
        }
        if let Some(about @ [server, ..]) = answers.get(1..=QUESTIONS.len()) {
            self.compare_and_delete.look_at([server]);
            if let Some(seen) = ServerDescription::read(about) {
                self.quarantine.met(seen, self.clock.now());
            }
        }
        self.was_open.store(true, Ordering::Relaxed);
        Ok(connection)
    }

    /// A replica is a mistake in the URL, unless sentinels name the primary or the server was a primary before. Then
    /// the error is retryable, because there will be a primary again.
    fn passing(&self, error: Error) -> Error {
        if *error.kind() != ErrorKind::NotPrimary {
            return error;
        }
        let named = matches!(self.target.plan, Plan::Sentinel(_));
        error.with_retryable(named || self.was_open.load(Ordering::Relaxed))
    }

    /// Opens a connection, in bounded time.
    pub(crate) async fn dial(&self, config: AsyncConnectionConfig) -> Result<Wire> {
        let server = match &self.target.plan {
            Plan::Server(server) => server.clone(),
            Plan::Sentinel(sentinels) => {
                let primary = sentinels.primary(&self.clock).await?;
                self.follow(&primary);
                *self.primary.lock().unwrap_or_else(PoisonError::into_inner) = Some(primary.clone());
                sentinels.server(primary)?
            }
            Plan::Cluster(_) => {
                return Err(Error::new(ErrorKind::Internal, "a cluster has no one server to connect to"));
            }
        };
        self.bounded(server.open(config)).await?
    }

    /// Awaits a step of an opening, in bounded time.
    pub(crate) async fn bounded<F: Future>(&self, future: F) -> Result<F::Output> {
        let limit = self.clock.now().after(OPEN_LIMIT);
        self.clock
            .timeout_at(limit, future)
            .await
            .ok_or_else(|| Error::outage(format!(
                "Redis at {:?} did not answer within {OPEN_LIMIT:?}; check the host, the port and the firewall, and whether \
                 the port speaks TLS (rediss://) or not (redis://)",
                self.target
            )))
    }
}

/// The answers to the first requests: the role first, the counter's seed last.
fn check_first(answers: &[Value]) -> Result<()> {
    let [role, .., seed] = answers else { return Err(fault::unexpected(&Value::Nil)) };
    match role {
        Value::Array(role) => match role.first() {
            Some(Value::BulkString(role)) if role == b"master" => {}
            _ => {
                return Err(Error::new(
                    ErrorKind::NotPrimary,
                    "this Redis is a replica or a sentinel, and a lock there excludes nobody; name the primary, or begin the URL with redis-sentinel://",
                ));
            }
        },
        Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoPerm) => {
            static TOLD: Seldom = Seldom::new();
            TOLD.line("ROLE", || {
                tracing::warn!(
                    "the Redis user may not run ROLE, so dlock cannot see whether the server is the primary"
                );
            });
        }
        other => return Err(fault::unexpected(other)),
    }
    match seed {
        Value::Int(1) => Ok(()),
        Value::Int(0) => {
            Err(Error::new(ErrorKind::CorruptState, "the fencing counter in Redis, dl1:fence, is no number"))
        }
        other => Err(fault::unexpected(other)),
    }
}
