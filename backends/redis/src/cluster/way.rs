//! The way to the servers of a cluster. The client knows the server of each slot; redirections are followed here.
//!
//! The client's own retries are off. It would also repeat a request whose connection broke, and a repeated release says
//! that the lock was somebody else's.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ::redis::cluster_async::ClusterConnection;
use ::redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use ::redis::{Cmd, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use dlock_contract::engine::background;
use dlock_contract::{BootInstant, Clock, Error, ErrorKind, Result};
use futures::future::join_all;
use tokio::sync::oneshot;

use crate::cluster::client::Numbered;
use crate::cluster::keys::{parts, primary_of, routing_of, simple, slot_of_command, spread};
use crate::layout::slots::{Slot, fence, number_of};
use crate::quarantine::server::Quarantine;
use crate::quarantine::shards::Shards;
use crate::reply::fault;
use crate::scripts::call::{call, is_unknown_script, words};
use crate::scripts::clock::CLOCK;
use crate::scripts::exclusive::{ExclusiveScripts, SCRIPTS};
use crate::scripts::lua::Lua;
use crate::scripts::together::TOGETHER;
use crate::socket::first_step::first_step;

/// How long a request follows redirections.
const FOLLOW_LIMIT: Duration = Duration::from_secs(3);

/// The way to all servers of a cluster.
pub(crate) struct ClusterWay {
    client: ClusterConnection,
    /// The client's number.
    pub(crate) number: u64,
    clock: Clock,
    quarantine: Arc<Quarantine>,
    /// Set if a server is silent: then another client must be opened.
    dead: Arc<AtomicBool>,
}

/// Takes a lock if it is free. Returns its token, or nothing.
const TAKE: &str = r"
if redis.call('SET',L,ARGV[1],'NX','PX',ARGV[2]) then return fence() end
return false
";

/// Draws the next token, and touches no lock.
const DRAW: &str = r"
local t=redis.call('TIME')
local us=t[1]*1000000+t[2]
local f=redis.call('INCRBY',KEYS[1],1)
if f<us then
  f=us
  redis.call('SET',KEYS[1],string.format('%.0f',f))
end
return f
";

/// Releases a lock, and touches no other key. Returns -1 if a caller waits for the lock.
const RELEASE_ALONE: &str = r"
local v=redis.call('GET',KEYS[1])
if v==ARGV[1] then return redis.call('DEL',KEYS[1]) end
if v==ARGV[1]..' +line' then return -1 end
return 0
";

struct Own {
    take: Lua,
    draw: Lua,
    release_alone: Lua,
}

static OWN: LazyLock<Own> = LazyLock::new(|| Own {
    take: Lua::new(&["local L=KEYS[1]", CLOCK, TAKE]).on(Some(&[])),
    draw: Lua::new(&[DRAW]).on(None),
    release_alone: Lua::new(&[RELEASE_ALONE]).on(None),
});

impl ClusterWay {
    /// `dead` is the flag of the connection that this way belongs to.
    pub(crate) fn new(
        Numbered { client, number }: Numbered,
        clock: Clock,
        quarantine: Arc<Quarantine>,
        dead: Arc<AtomicBool>,
    ) -> Self {
        Self { client, number, clock, quarantine, dead }
    }

    /// Sends a command to the server of its key, and follows redirections.
    pub(crate) async fn one(&self, command: &Cmd) -> Result<Value> {
        self.send(command, false).await
    }

    /// `has_other_way`: the caller has another way than this command. Then this does not wait while a moving slot's
    /// keys are at two servers.
    async fn send(&self, command: &Cmd, has_other_way: bool) -> Result<Value> {
        match self.follow(command, has_other_way).await {
            Err(error) if has_other_way && is_torn(&Err(error.clone())) => {
                error.try_into().map(Value::ServerError).map_err(|error| fault::cluster(&error))
            }
            answer => classified(answer),
        }
    }

    async fn follow(&self, command: &Cmd, has_other_way: bool) -> RedisResult<Value> {
        let slot = slot_of_command(command);
        let routing = routing_of(slot);
        let end = self.clock.now().after(FOLLOW_LIMIT);
        let mut pause = Duration::from_millis(5);
        loop {
            let request_parts = (self.client.clone(), command.clone(), routing.clone());
            let answer = self
                .to_the_end(async move {
                    let (mut client, command, routing) = request_parts;
                    client.route_command(command, routing).await
                })
                .await;
            self.heard(&answer, slot);
            let answer = match asked_elsewhere(&answer) {
                Some((host, port)) => self.ask_at(host, port, command).await,
                None => answer,
            };
            let gives_up = self.clock.now() >= end || has_other_way && is_torn(&answer);
            if gives_up || !is_on_the_move(&answer) {
                return answer;
            }
            // The client has looked, or is looking, for the slot's new place.
            self.clock.sleep_until(self.clock.now().after(pause)).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Sends commands to the server of a slot in one go, over one connection.
    pub(crate) async fn together(&self, slot: Slot, commands: impl IntoIterator<Item = Cmd>) -> Result<Vec<Value>> {
        let mut all = ::redis::pipe();
        for command in commands {
            all.add_command(command);
        }
        let answers = self.pipeline(all, primary_of(slot)).await;
        self.heard(&answers, Some(slot));
        answers
            .map_err(|error| classified(Err(error)).map_or_else(|error| error, |refusal| fault::unexpected(&refusal)))
    }

    async fn pipeline(&self, commands: Pipeline, route: SingleNodeRoutingInfo) -> RedisResult<Vec<Value>> {
        let (mut client, count) = (self.client.clone(), commands.len());
        self.to_the_end(async move { client.route_pipeline(commands, 0, count, route).await }).await
    }

    /// Sends a request. A task waits for its answer or its time limit, even if the caller gives up earlier, as renewals
    /// of short leases do. Otherwise the client would forget the request, and nobody would notice that its server is
    /// silent.
    async fn to_the_end<T: Send + 'static>(
        &self,
        request: impl Future<Output = RedisResult<T>> + Send + 'static,
    ) -> RedisResult<T> {
        let (sender, receiver) = oneshot::channel();
        let dead = self.dead.clone();
        let reading = async move {
            let answer = request.await;
            if answer.as_ref().is_err_and(RedisError::is_timeout) {
                dead.store(true, Ordering::Relaxed);
            }
            // The caller may have given up its request.
            let _ = sender.send(answer);
        };
        match background() {
            Ok(background) => first_step(reading, |rest| background.spawn(rest)),
            // A child after `fork` sends nothing.
            Err(_) => drop(reading),
        }
        receiver.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::BrokenPipe).into()))
    }

    /// Notes errors after which another server may grant, or the same server may have lost its locks.
    fn heard<T>(&self, answer: &RedisResult<T>, slot: Option<Slot>) {
        use ::redis::ErrorKind::{ClusterConnectionNotFound, Io, Server};
        use ServerErrorKind::{Moved, ReadOnly};
        let Err(error) = answer else { return };
        let shards = &self.quarantine.shards;
        match (error.kind(), slot.map(number_of)) {
            // Without a connection to the slot's server, the client asks another server, which answers MOVED to the
            // known one. This says nothing about the other server's slots.
            (Server(Moved), Some(slot)) if error.redirect_node().is_some_and(|(at, _)| shards.is_at(slot, at)) => {
                shards.failed(slot);
            }
            (Io, Some(slot)) => shards.failed(slot),
            (Io | ClusterConnectionNotFound | Server(Moved | ReadOnly), _) => shards.changed(),
            _ => {}
        }
    }

    /// Asks the server that a slot is moving to. `ASKING` and the command leave in one go. Otherwise a command of
    /// another task could come between them on the shared connection, and use up the permission.
    async fn ask_at(&self, host: String, port: u16, command: &Cmd) -> RedisResult<Value> {
        let mut all = ::redis::pipe();
        // The new server is also asked who it is, because it may have lost locks.
        let at = slot_of_command(command);
        let slot = at.filter(|_| !self.quarantine.rules.are_off());
        if slot.is_some() {
            Shards::questions_beside().for_each(|question| {
                all.add_command(words(question));
            });
        }
        all.cmd("ASKING").add_command(command.clone());
        let answers = self.pipeline(all, SingleNodeRoutingInfo::ByAddress { host, port }).await;
        self.heard(&answers, None);
        let mut answers = answers?;
        let answer = answers.pop().unwrap_or(Value::Nil);
        if let (Some(slot), Some((_asking, about))) = (slot, answers.split_last()) {
            self.quarantine.shards.asked_beside(&self.quarantine.rules, number_of(slot), about, self.clock.now());
        }
        Ok(answer)
    }

    /// Sends each command to the server of its key, all at once.
    pub(crate) async fn all(&self, commands: impl IntoIterator<Item = Cmd>) -> Result<Vec<Value>> {
        let commands: Vec<_> = commands.into_iter().collect();
        join_all(commands.iter().map(|command| self.one(command))).await.into_iter().collect()
    }

    /// Sends each command to the server of its key, and waits for each until its instant. `None`: the keys of a command
    /// are not all at one server, and nothing was done.
    pub(crate) async fn each(
        &self,
        commands: impl IntoIterator<Item = (Cmd, BootInstant)>,
    ) -> Vec<Result<Option<Value>>> {
        let sent = commands.into_iter().map(async |(command, by)| {
            match self.clock.timeout_at(by, self.follow(&command, true)).await {
                Some(answer) if is_torn(&answer) => Ok(None),
                Some(answer) => classified(answer).map(Some),
                None => Err(Error::outage("the slot's server did not answer in time")),
            }
        });
        join_all(sent).await
    }

    /// Sends a command to all primaries. Returns the address and the answer of each.
    pub(crate) async fn everywhere(&self, command: Cmd) -> Result<Vec<(String, Value)>> {
        let routing = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        match self.client.clone().route_command(command, routing).await.map_err(|error| fault::cluster(&error))? {
            Value::Map(answers) => Ok(answers
                .into_iter()
                .map(|(address, answer)| match address {
                    Value::BulkString(address) => (String::from_utf8_lossy(&address).into_owned(), answer),
                    _ => (String::new(), answer),
                })
                .collect()),
            other => Err(fault::unexpected(&other)),
        }
    }

    /// Runs a script by its digest, or by its text if the server does not know the digest. All keys that the script may
    /// touch are declared. So while a slot moves, a server that has only some of the keys refuses before anything has
    /// run.
    pub(crate) async fn script(&self, lua: &Lua, build: &impl Fn(&mut Cmd)) -> Result<Value> {
        let ExclusiveScripts { release, release_to, .. } = &*SCRIPTS;
        let together = &TOGETHER;
        let has_other_way = [&OWN.take, release, release_to, together].iter().any(|other| other.digest == lua.digest);
        for whole in [false, true] {
            let command = spread(&call(lua, whole, build), lua)?;
            match self.send(&command, has_other_way).await {
                Ok(answer) if !whole && is_unknown_script(&answer) => {}
                // Nothing has run. `Nil` tells the caller so.
                Ok(answer)
                    if is_try_again(&answer) && [&release_to.digest, &together.digest].contains(&&lua.digest) =>
                {
                    return Ok(Value::Nil);
                }
                // Only after this refusal. After any other failure the script may have run, and a second release would
                // report a loss.
                Ok(answer) if is_try_again(&answer) && lua.digest == release.digest => {
                    return self.release_alone(&command).await?.ok_or_else(|| moving("TRYAGAIN"));
                }
                answer => return answer,
            }
        }
        Err(Error::new(ErrorKind::Protocol, "Redis does not know a script that came with its text"))
    }

    /// Releases a lock while its slot moves, by a script that touches only the lock. `None` if a caller waits for the
    /// lock.
    async fn release_alone(&self, release: &Cmd) -> Result<Option<Value>> {
        let (keys, rest) = parts(release)?;
        let build = |command: &mut Cmd| {
            command.arg(1).arg(keys[0]);
            rest.iter().for_each(|argument| {
                command.arg(argument);
            });
        };
        let answer = Box::pin(self.plain(&OWN.release_alone, &build)).await?;
        Ok((answer != Value::Int(-1)).then_some(answer))
    }

    /// Sends `SET name value NX PX ttl`, and draws a token if it wins. Returns both answers.
    pub(crate) async fn drawing(&self, set: &Cmd) -> Result<Vec<Value>> {
        let args = simple(set);
        let &[_, name, value, _, _, ttl] = &args[..] else { return Err(fault::unexpected(&Value::Nil)) };
        let take = |command: &mut Cmd| {
            command.arg(1).arg(name).arg(value).arg(ttl);
        };
        match self.script(&OWN.take, &take).await? {
            token @ Value::Int(_) => Ok(vec![Value::Okay, token]),
            Value::Nil => Ok(vec![Value::Nil, Value::Nil]),
            // While the slot moves, the lock and the counter are at two servers. So ask one after the other.
            torn if is_try_again(&torn) => {
                let found = self.one(set).await?;
                if found != Value::Okay {
                    return Ok(vec![found, Value::Nil]);
                }
                let counter = fence(Slot::for_key(name));
                let draw = |command: &mut Cmd| {
                    command.arg(1).arg(&counter);
                };
                Ok(vec![found, self.plain(&OWN.draw, &draw).await?])
            }
            other => Ok(vec![other, Value::Nil]),
        }
    }

    /// Runs a script that touches only its one key.
    async fn plain(&self, lua: &Lua, build: &impl Fn(&mut Cmd)) -> Result<Value> {
        let answer = self.one(&call(lua, false, build)).await?;
        if !is_unknown_script(&answer) {
            return Ok(answer);
        }
        self.one(&call(lua, true, build)).await
    }
}

/// Server errors are returned as values, except redirections.
fn classified(answer: RedisResult<Value>) -> Result<Value> {
    answer.or_else(|error| match error.clone().try_into() {
        Ok(server) if !is_on_the_move(&Err(error)) => Ok(Value::ServerError(server)),
        Ok(server) => Err(moving(server.code())),
        Err(error) => Err(fault::cluster(&error)),
    })
}

/// The address in an ASK redirection.
fn asked_elsewhere(answer: &RedisResult<Value>) -> Option<(String, u16)> {
    let error = answer.as_ref().err().filter(|error| error.kind() == ServerErrorKind::Ask.into())?;
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}

/// Whether nothing was done because the slot is at another server or is moving.
fn is_on_the_move(answer: &RedisResult<Value>) -> bool {
    use ServerErrorKind::{Ask, Moved, ReadOnly, TryAgain};
    let kinds = [Ask, Moved, ReadOnly, TryAgain];
    answer.as_ref().is_err_and(|error| kinds.iter().any(|kind| error.kind() == (*kind).into()))
}

/// Whether the server has only some of the keys.
fn is_torn(answer: &RedisResult<Value>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == ServerErrorKind::TryAgain.into())
}

fn is_try_again(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::TryAgain))
}

fn moving(code: &str) -> Error {
    let error = match code {
        "MOVED" => Error::outage("the slot is moving from server to server (MOVED)"),
        "ASK" => Error::outage("the slot is moving, and its new server cannot be reached (ASK)"),
        "READONLY" => Error::outage("the slot's server has become a replica, and there is no new one yet (READONLY)"),
        _ => Error::outage("the cluster is moving the slot (TRYAGAIN)"),
    };
    error.with_code(code)
}
