//! Connections: one for each runtime that asks, opened there and polled in place; our own thread is one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Cmd, Pipeline, PushInfo, PushKind, ServerErrorKind, ToRedisArgs, Value};

use super::fault;
use super::scripts::{FENCE, Lua, SCRIPTS};
use super::target::Target;
use crate::background::{Opened, PerRuntime};
use crate::clock::{BootInstant, Clock};
use crate::error::{Error, ErrorKind, Result};

/// Opening takes no longer: a firewall that swallows packets would hold it for minutes.
pub(super) const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// A connection that has left requests unanswered for so long is not used for new ones.
const SILENCE_LIMIT: Duration = Duration::from_secs(2);

/// All connections to one server.
pub(super) struct Connections {
    pub(super) target: Target,
    pub(super) clock: Clock,
    /// The highest token that this process has seen.
    high: AtomicU64,
    open: PerRuntime<Arc<Connection>>,
}

/// One connection, shared by all tasks of its runtime.
pub(super) struct Connection {
    multiplexed: MultiplexedConnection,
    /// Set by the client when the server has hung up, so that an idle connection's end costs no failed request.
    dead: Arc<AtomicBool>,
    /// Since when requests have been waiting without any answer, in nanoseconds; 0 while none is.
    silent_since: AtomicU64,
}

type Shared = Opened<Arc<Connection>>;

impl Connections {
    pub(super) fn new(target: Target, clock: Clock) -> Self {
        Self { target, clock, high: AtomicU64::new(0), open: PerRuntime::new() }
    }

    /// The present runtime's connection, opened if there is none that lives.
    pub(super) async fn here(&self) -> Result<Shared> {
        let shared = self.open.get(|| self.connect()).await?;
        if shared.value.is_usable(&self.clock) {
            return Ok(shared);
        }
        self.open.discard(&shared);
        self.open.get(|| self.connect()).await
    }

    /// The connection of that runtime, if it is open still.
    pub(super) fn of(&self, runtime: tokio::runtime::Id) -> Option<Shared> {
        self.open.peek(runtime).filter(|shared| !shared.value.dead.load(Ordering::Relaxed))
    }

    pub(super) fn close(&self) {
        self.open.clear();
    }

    /// The highest token seen so far.
    pub(super) fn high(&self) -> u64 {
        self.high.load(Ordering::Relaxed)
    }

    /// Notes a token.
    pub(super) fn saw(&self, token: u64) {
        self.high.fetch_max(token, Ordering::Relaxed);
    }

    /// Sends one command; an error of the server is an answer.
    pub(super) async fn command(&self, shared: &Shared, command: &Cmd) -> Result<Value> {
        let connection = &*shared.value;
        connection.expect_answer(&self.clock);
        let answer = connection.multiplexed.clone().send_packed_command(command).await;
        connection.silent_since.store(0, Ordering::Relaxed);
        let answer = answer.map_err(|error| self.broken(shared, &error))?;
        self.check_role(shared, &answer);
        Ok(answer)
    }

    /// Sends commands in one go; an error of the server is an answer of its command.
    pub(super) async fn pipeline(&self, shared: &Shared, pipeline: &Pipeline) -> Result<Vec<Value>> {
        let connection = &*shared.value;
        connection.expect_answer(&self.clock);
        let answers = connection.multiplexed.clone().send_packed_commands(pipeline, 0, pipeline.len()).await;
        connection.silent_since.store(0, Ordering::Relaxed);
        let answers = answers.map_err(|error| self.broken(shared, &error))?;
        answers.iter().for_each(|answer| self.check_role(shared, answer));
        Ok(answers)
    }

    /// Runs a script by its digest; by its text, which the server then keeps, if it does not know it. That is safe:
    /// unknown means that nothing has run.
    pub(super) async fn script(&self, shared: &Shared, lua: &Lua, build: impl Fn(&mut Cmd)) -> Result<Value> {
        let answer = self.command(shared, &call(lua, false, &build)).await?;
        if !is_unknown_script(&answer) {
            return Ok(answer);
        }
        self.command(shared, &call(lua, true, &build)).await
    }

    async fn connect(&self) -> Result<Arc<Connection>> {
        let dead = Arc::new(AtomicBool::new(false));
        let died = dead.clone();
        let multiplexed = self
            .dial(config().set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    died.store(true, Ordering::Relaxed);
                }
                Ok::<(), ::redis::aio::SendError>(())
            }))
            .await?;
        let mut opened = multiplexed.clone();
        let connection = Arc::new(Connection { multiplexed, dead, silent_since: AtomicU64::new(0) });
        let mut first = ::redis::pipe();
        first.cmd("ROLE");
        for lua in [&SCRIPTS.ask, &SCRIPTS.release, &SCRIPTS.abandon, &SCRIPTS.renew] {
            first.cmd("SCRIPT").arg("LOAD").arg(&lua.text);
        }
        first.add_command(call(&SCRIPTS.seed, true, &|command: &mut Cmd| {
            command.arg(1).arg(FENCE).arg(self.high());
        }));
        let answers = self.bounded(opened.send_packed_commands(&first, 0, first.len())).await?;
        let answers = answers.map_err(|error| fault::client(&error))?;
        check_first(&answers)?;
        Ok(connection)
    }

    /// Opens a connection, in bounded time.
    pub(super) async fn dial(&self, config: AsyncConnectionConfig) -> Result<MultiplexedConnection> {
        let opened = self.bounded(self.target.client.get_multiplexed_async_connection_with_config(&config)).await?;
        opened.map_err(|error| fault::client(&error))
    }

    async fn bounded<F: Future>(&self, future: F) -> Result<F::Output> {
        let limit = self.clock.now().after(OPEN_LIMIT);
        self.clock
            .timeout_at(limit, future)
            .await
            .ok_or_else(|| Error::outage(format!("Redis at {:?} did not answer within {OPEN_LIMIT:?}", self.target)))
    }

    fn broken(&self, shared: &Shared, error: &::redis::RedisError) -> Error {
        self.open.discard(shared);
        fault::client(error)
    }

    /// A primary that has become a replica stays one on this connection; the next one may lead to the new primary.
    fn check_role(&self, shared: &Shared, answer: &Value) {
        if matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::ReadOnly)) {
            self.open.discard(shared);
        }
    }
}

impl Connection {
    fn is_usable(&self, clock: &Clock) -> bool {
        if self.dead.load(Ordering::Relaxed) {
            return false;
        }
        let since = self.silent_since.load(Ordering::Relaxed);
        since == 0 || clock.now().since(BootInstant::from_nanos(since)) < SILENCE_LIMIT
    }

    fn expect_answer(&self, clock: &Clock) {
        if self.silent_since.load(Ordering::Relaxed) == 0 {
            self.silent_since.store(clock.now().as_nanos(), Ordering::Relaxed);
        }
    }
}

/// The client's own time limits need tokio's timer, which a caller's runtime may lack; the core and we have our own.
pub(super) fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        // As many waiting requests as busy programs have tasks: a full queue costs a second wake-up each.
        .set_pipeline_buffer_size(1024)
}

/// A call of a script, without the number of its keys and what follows: `build` adds them.
pub(super) fn call(lua: &Lua, whole: bool, build: &impl Fn(&mut Cmd)) -> Cmd {
    let mut command = Cmd::with_capacity(9, if whole { lua.text.len() + 512 } else { 768 });
    if whole {
        command.arg("EVAL").arg(&lua.text);
    } else {
        command.arg("EVALSHA").arg(&lua.digest);
    }
    build(&mut command);
    command
}

pub(super) fn is_unknown_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
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
                    "this Redis is a replica or a sentinel: a lock taken there excludes nobody",
                ));
            }
        },
        Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoPerm) => {
            tracing::warn!("the Redis user may not run ROLE, so dlock cannot see whether the server is the primary");
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

/// Adds the one key of a script.
pub(super) fn on(command: &mut Cmd, key: impl ToRedisArgs) -> &mut Cmd {
    command.arg(1).arg(key)
}
