//! Requests over a connection.

use std::sync::Arc;

use ::redis::{Cmd, ServerErrorKind, Value};
use dlock_contract::{BootInstant, Claim, Error, LockKey, Result};

use crate::combine::batch::Answers;
use crate::combine::combiner::Ahead;
use crate::connections::connection::{Connection, Way};
use crate::connections::looks;
use crate::connections::pool::Connections;
use crate::connections::unanswered::UnansweredRequest;
use crate::layout::name::LockName;
use crate::layout::slots::{Slot, slot_of};
use crate::layout::value::LockValue;
use crate::scripts::call::{call, is_unknown_script, on};
use crate::scripts::exclusive::SCRIPTS;
use crate::scripts::lua::Lua;

impl Connections {
    /// Sends one command. A server error is returned as an answer.
    pub async fn command(&self, connection: &Arc<Connection>, command: Cmd) -> Result<Value> {
        let wait = UnansweredRequest::new(connection, &self.clock);
        let (look, ahead) = self.look_ahead(connection, wait.since);
        let answer = match &connection.way {
            Way::Server(way) => way.one(command, ahead).await,
            Way::Cluster(way) => Box::pin(way.one(&command)).await,
        };
        wait.answered();
        noted(look).await;
        let answer = answer.inspect_err(|_| self.failed(connection))?;
        self.check_role(connection, &answer)?;
        Ok(answer)
    }

    /// Sends commands in one go. A server error is returned as the answer of its command.
    pub async fn pipeline(
        &self,
        connection: &Arc<Connection>,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> Result<Answers> {
        match &connection.way {
            Way::Server(way) => self.all_of(connection, |ahead| way.all(commands, ahead)).await,
            Way::Cluster(way) => self.all_of(connection, |_| Box::pin(way.all(commands))).await,
        }
    }

    /// Sends a command that may win a lock, and draws a token after it. Returns both answers.
    pub(crate) async fn drawing(&self, connection: &Arc<Connection>, command: Cmd) -> Result<Answers> {
        match &connection.way {
            Way::Server(way) => self.all_of(connection, |ahead| way.drawing(command, ahead)).await,
            Way::Cluster(way) => self.all_of(connection, |_| Box::pin(way.drawing(&command))).await,
        }
    }

    /// Releases a lock, if possible in one request with other releases. A lock with waiters, or in a cluster, is
    /// released alone.
    pub(crate) async fn release(&self, connection: &Arc<Connection>, claim: &Claim) -> Result<Value> {
        let answer = match &connection.way {
            Way::Server(way) => {
                let wait = UnansweredRequest::new(connection, &self.clock);
                let answer = way.release(claim).await;
                wait.answered();
                let answer = answer.inspect_err(|_| self.failed(connection))?;
                self.check_role(connection, &answer)?;
                answer
            }
            Way::Cluster(_) => Value::Int(2),
        };
        if answer != Value::Int(2) && !is_unknown_script(&answer) {
            return Ok(answer);
        }
        let script = self.script(connection, &SCRIPTS.release, |command| {
            on(command, LockName(&claim.key)).arg(LockValue(claim));
        });
        Box::pin(script).await
    }

    async fn all_of<F: Future<Output = Result<impl Into<Answers>>>>(
        &self,
        connection: &Arc<Connection>,
        request: impl FnOnce(Option<Ahead>) -> F,
    ) -> Result<Answers> {
        let wait = UnansweredRequest::new(connection, &self.clock);
        let (look, ahead) = self.look_ahead(connection, wait.since);
        let answers = request(ahead).await;
        wait.answered();
        noted(look).await;
        let answers = answers.inspect_err(|_| self.failed(connection))?.into();
        answers.iter().try_for_each(|answer| self.check_role(connection, answer))?;
        Ok(answers)
    }

    /// Runs a script by its digest. If the server does not know the digest, sends the text, which the server then
    /// keeps. That is safe, because an unknown script has not run.
    pub async fn script(&self, connection: &Arc<Connection>, lua: &Lua, build: impl Fn(&mut Cmd)) -> Result<Value> {
        if let Way::Cluster(way) = &connection.way {
            return Box::pin(way.script(lua, &build)).await;
        }
        let answer = self.command(connection, call(lua, false, &build)).await?;
        if !is_unknown_script(&answer) {
            return Ok(answer);
        }
        Box::pin(self.command(connection, call(lua, true, &build))).await
    }

    /// Sends commands without keys to the server, or to each primary of a cluster. Returns the answers of each server, with
    /// its address.
    pub(crate) async fn everywhere(
        &self,
        connection: &Arc<Connection>,
        commands: Vec<Cmd>,
    ) -> Vec<(String, Result<Vec<Value>>)> {
        match &connection.way {
            Way::Cluster(way) => way.everywhere(&commands).await,
            Way::Server(_) => {
                vec![(String::new(), self.pipeline(connection, commands).await.map(Answers::into_vec))]
            }
        }
    }

    /// Discards the connection to a single server. The connections to a cluster's servers are opened again one by one
    /// (`cluster::nodes`).
    fn failed(&self, connection: &Arc<Connection>) {
        if matches!(connection.way, Way::Server(_)) {
            self.discard(connection);
        }
    }

    /// Discards the connection if its server has become a replica. The next connection may lead to the new primary.
    ///
    /// # Errors
    /// If another server has become the primary since the request left. Grants of the old primary do not count.
    fn check_role(&self, connection: &Arc<Connection>, answer: &Value) -> Result<()> {
        if matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::ReadOnly)) {
            self.discard(connection);
        }
        if connection.switches != self.switches() {
            return Err(Error::outage("another Redis has become the primary"));
        }
        Ok(())
    }

    /// Sends commands in one go. In a cluster each goes to its server, which has until its instant to answer. Returns
    /// the outcome of each command. `None`: its keys are not all at one server now, and nothing was done.
    pub(crate) async fn each(
        &self,
        connection: &Arc<Connection>,
        commands: impl IntoIterator<Item = (Cmd, BootInstant)>,
    ) -> Result<Vec<Result<Option<Value>>>> {
        let Way::Cluster(way) = &connection.way else {
            let commands = commands.into_iter().map(|(command, _)| command);
            return Ok(self.pipeline(connection, commands).await?.into_iter().map(|answer| Ok(Some(answer))).collect());
        };
        Ok(Box::pin(way.each(commands)).await)
    }

    /// Sends commands to the server of a slot. Without a cluster, sends them to the one server.
    pub(crate) async fn at_slot(
        &self,
        connection: &Arc<Connection>,
        slot: u16,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> Result<Vec<Value>> {
        let Way::Cluster(way) = &connection.way else {
            return Ok(self.pipeline(connection, commands).await?.into_vec());
        };
        let slot = Slot::new(slot).ok_or_else(|| Error::config("after", "a place beyond all slots of a cluster"))?;
        way.together(slot, commands).await
    }

    /// Sends commands about one lock to its server in one go, over one connection.
    pub(crate) async fn together(
        &self,
        connection: &Arc<Connection>,
        key: &LockKey,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> Result<Vec<Value>> {
        let Way::Cluster(way) = &connection.way else {
            return Ok(self.pipeline(connection, commands).await?.into_vec());
        };
        way.together(slot_of(key), commands).await
    }
}

/// Waits until the findings of a request's look are noted.
async fn noted(look: Option<looks::Look>) {
    if let Some(look) = look {
        // An error means that the runtime has ended, and the connection with it.
        let _ = look.await;
    }
}
