//! The way to the servers of a cluster: sends requests to the server of their slot, and follows redirections.
//!
//! A request whose connection broke is not repeated here. A repeated release would say that the lock was another owner's.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, Pipeline, ServerErrorKind, Value};
use dlock_contract::{BootInstant, Error, ErrorKind, Result};
use dlock_store::Clock;
use futures::future::join_all;

use crate::cluster::keys::{parts, simple, slot_of_command, spread};
use crate::cluster::nodes::Node;
use crate::cluster::servers::Servers;
use crate::layout::slots::{Slot, fence, number_of};
use crate::quarantine::server::Quarantine;
use crate::quarantine::shards::Shards;
use crate::reply::fault;
use crate::scripts::call::{call, is_unknown_script, words};
use crate::scripts::clock::CLOCK;
use crate::scripts::exclusive::{ExclusiveScripts, SCRIPTS};
use crate::scripts::lua::Lua;
use crate::scripts::together::TOGETHER;

/// How long a request follows redirections.
const FOLLOW_LIMIT: Duration = Duration::from_secs(3);

/// The way to all servers of a cluster.
pub(crate) struct ClusterWay {
    servers: Arc<Servers>,
    clock: Clock,
    quarantine: Arc<Quarantine>,
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
    pub(crate) fn new(servers: Arc<Servers>, clock: Clock, quarantine: Arc<Quarantine>) -> Self {
        Self { servers, clock, quarantine }
    }

    /// Sends a command to the server of its key, and follows redirections.
    pub(crate) async fn one(&self, command: &Cmd) -> Result<Value> {
        self.send(command, false).await
    }

    /// `has_other_way`: the caller has another way than this command. Then this does not wait while a moving slot's
    /// keys are at two servers.
    async fn send(&self, command: &Cmd, has_other_way: bool) -> Result<Value> {
        match self.follow(command, has_other_way).await? {
            answer if has_other_way && is_try_again(&answer) => Ok(answer),
            answer => settled(answer),
        }
    }

    async fn follow(&self, command: &Cmd, has_other_way: bool) -> Result<Value> {
        let slot = slot_of_command(command);
        let end = self.clock.now().after(FOLLOW_LIMIT);
        let mut pause = Duration::from_millis(5);
        loop {
            let node = self.servers.of(slot)?;
            let sent = command.clone();
            let request = |mut client: MultiplexedConnection| async move { client.send_packed_command(&sent).await };
            let answer = self.servers.nodes.send(&node, request).await;
            let answer = self.heard(answer, slot, &node)?;
            let answer = match self.asked_elsewhere(&answer, &node) {
                Some(next) => self.ask_at(&next, command).await?,
                None => answer,
            };
            let gives_up = self.clock.now() >= end || has_other_way && is_try_again(&answer);
            if gives_up || !is_on_the_move(&answer) {
                return Ok(answer);
            }
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
        let node = self.servers.of(Some(slot))?;
        let answers = self.pipeline(&node, all).await;
        let answers = answers.inspect_err(|_| self.quarantine.shards.failed(number_of(slot)))?;
        for answer in &answers {
            self.note(answer, Some(slot), &node);
        }
        match answers.iter().find(|answer| is_on_the_move(answer)) {
            Some(Value::ServerError(error)) => Err(moving(error.code())),
            _ => Ok(answers),
        }
    }

    async fn pipeline(&self, node: &Node, commands: Pipeline) -> Result<Vec<Value>> {
        let count = commands.len();
        let request =
            |mut client: MultiplexedConnection| async move { client.send_packed_commands(&commands, 0, count).await };
        self.servers.nodes.send(node, request).await
    }

    /// Notes a failure after which another server may grant, or the same server may have lost its locks.
    fn heard(&self, answer: Result<Value>, slot: Option<Slot>, node: &Node) -> Result<Value> {
        match (&answer, slot.map(number_of)) {
            (Ok(answer), _) => self.note(answer, slot, node),
            (Err(_), Some(slot)) => self.quarantine.shards.failed(slot),
            (Err(_), None) => self.quarantine.shards.changed(),
        }
        answer
    }

    /// Notes a refusal after which another server may grant.
    fn note(&self, answer: &Value, slot: Option<Slot>, node: &Node) {
        let Value::ServerError(error) = answer else { return };
        if matches!(error.kind(), Some(ServerErrorKind::Moved | ServerErrorKind::ReadOnly)) {
            self.quarantine.shards.changed();
        }
        self.servers.heard(slot, node, error);
    }

    /// Asks the server that a slot is moving to. `ASKING` and the command leave in one go. Otherwise a command of
    /// another task could come between them on the shared connection, and use up the permission.
    async fn ask_at(&self, node: &Node, command: &Cmd) -> Result<Value> {
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
        let answers = self.pipeline(node, all).await;
        let mut answers = answers.inspect_err(|_| self.quarantine.shards.changed())?;
        let answer = answers.pop().unwrap_or(Value::Nil);
        // The slot has its former server until it has moved.
        self.note(&answer, None, node);
        if let (Some(slot), Some((_asking, about))) = (slot, answers.split_last()) {
            self.quarantine.shards.asked_beside(&self.quarantine.rules, number_of(slot), about, self.clock.now());
        }
        Ok(answer)
    }

    /// The server that an ASK redirection names.
    fn asked_elsewhere(&self, answer: &Value, node: &Node) -> Option<Arc<Node>> {
        let Value::ServerError(error) = answer else { return None };
        if error.kind() != Some(ServerErrorKind::Ask) {
            return None;
        }
        self.servers.redirected(node, error)
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
                Some(Ok(answer)) if is_try_again(&answer) => Ok(None),
                Some(answer) => answer.and_then(settled).map(Some),
                None => Err(Error::outage("the slot's server did not answer in time")),
            }
        });
        join_all(sent).await
    }

    /// Sends commands without keys to all primaries. Returns the address and the answers of each.
    pub(crate) async fn everywhere(&self, commands: &[Cmd]) -> Vec<(String, Result<Vec<Value>>)> {
        let ask = async |(node, _): (Arc<Node>, u16)| {
            let mut all = ::redis::pipe();
            for command in commands {
                all.add_command(command.clone());
            }
            (node.shown(), self.pipeline(&node, all).await)
        };
        join_all(self.servers.primaries().into_iter().map(ask)).await
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
fn settled(answer: Value) -> Result<Value> {
    match answer {
        Value::ServerError(error) if is_on_the_move(&Value::ServerError(error.clone())) => Err(moving(error.code())),
        answer => Ok(answer),
    }
}

/// Whether nothing was done because the slot is at another server or is moving.
fn is_on_the_move(answer: &Value) -> bool {
    use ServerErrorKind::{Ask, Moved, ReadOnly, TryAgain};
    matches!(answer, Value::ServerError(error) if matches!(error.kind(), Some(Ask | Moved | ReadOnly | TryAgain)))
}

/// Whether the server has only some of the keys.
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
