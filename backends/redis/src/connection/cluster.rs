//! What differs in a cluster: where requests about several locks go, and whether a slot's server may grant.

use std::sync::Arc;

use ::redis::{Cmd, Value};
use dlock_contract::{BootInstant, Error, Hold, LockKey, Result};

use super::super::check::is_forbidden;
use super::super::fault;
use super::super::guards::QUESTIONS;
use super::super::shards::View;
use super::super::topology::cluster::ClusterWay;
use super::super::topology::slots::{Slot, fence, number_of, slot_of};
use super::{Connection, Connections, Way, words};

impl Connections {
    /// Sends commands in one go, in a cluster each to its server, which has until its instant to answer; what became of
    /// each.
    /// `None`: its keys are not at one server just now, and nothing was done.
    pub(in super::super) async fn each(
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

    /// Sends commands about one lock to its server in one go, over one connection.
    pub(in super::super) async fn together(
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

    /// Sends commands to the server of a slot; where there is no cluster, to the one server.
    pub(in super::super) async fn at_slot(
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

    /// Looks at the server that grants this lock, if something may have happened to it.
    ///
    /// # Errors
    /// While the lock may be somebody's although it looks free; if the server does not answer.
    pub(in super::super) async fn admit(self: &Arc<Self>, key: &LockKey) -> Result<()> {
        if self.cluster().is_some() && !self.guards.are_off() {
            let slot = slot_of(key);
            if !self.guards.shards.knows(number_of(slot)) {
                Box::pin(self.look(slot)).await?;
            }
            return self.guards.shards.check(&self.guards, number_of(slot), || self.clock.now());
        }
        if self.guards.evicts() {
            // It may have been set right since.
            let [.., config] = QUESTIONS;
            let answer = Box::pin(async { self.command(&self.here().await?, words(config)).await }).await?;
            self.guards.heard_policy(&answer)?;
        }
        self.guards.check(|| self.clock.now())
    }

    /// Was there no reason to look again?
    pub(in super::super) fn admits(&self, key: &LockKey) -> bool {
        if self.cluster().is_some() && !self.guards.are_off() {
            let (shards, slot) = (&self.guards.shards, number_of(slot_of(key)));
            return shards.knows(slot) && shards.check(&self.guards, slot, || self.clock.now()).is_ok();
        }
        self.guards.check(|| self.clock.now()).is_ok()
    }

    /// Is a grant that was pushed to be believed? `high` is from before it can have been made.
    pub(in super::super) fn believes(&self, hold: &Hold, high: u64) -> bool {
        let Some(token) = hold.token.map(|token| token.get()) else { return false };
        let believed = !Self::is_behind(token, high) && self.admits(&hold.claim.key);
        if believed {
            self.saw(token);
        }
        believed
    }

    /// Looks at all servers of a cluster, so that a later change of each is seen. One that does not answer stays unknown.
    pub(in super::super) async fn meet_all(self: &Arc<Self>) {
        if self.cluster().is_none() || self.guards.are_off() {
            return;
        }
        if let Some(any) = Slot::new(0) {
            let _ = self.look(any).await;
        }
        for slot in self.guards.shards.unmet().into_iter().filter_map(Slot::new) {
            let _ = self.look(slot).await;
        }
    }

    async fn look(self: &Arc<Self>, slot: Slot) -> Result<()> {
        let connection = self.here().await?;
        let Way::Cluster(way) = &connection.way else { return Ok(()) };
        let shards = &self.guards.shards;
        for has_led_there in [false, true] {
            let changes = shards.changes();
            let answers = ask(way, slot).await?;
            match View::read(&answers) {
                Some(view) => {
                    let is_its_server = view.has(number_of(slot));
                    shards.met(&self.guards, view, changes, self.clock.now());
                    if is_its_server {
                        return Ok(());
                    }
                }
                None => match answers.iter().find(|answer| matches!(answer, Value::ServerError(_))) {
                    Some(refused) if !is_forbidden(refused) => return Err(fault::unexpected(refused)),
                    _ => {
                        shards.cannot_look();
                        return Ok(());
                    }
                },
            }
            // The client asks any other server where it has no connection to the right one. A question about a key of the
            // slot leads it there.
            if !has_led_there {
                let mut exists = Cmd::new();
                exists.arg("EXISTS").arg(fence(slot));
                let answer = way.one(&exists).await?;
                if matches!(answer, Value::ServerError(_)) {
                    return Err(fault::unexpected(&answer));
                }
            }
        }
        Err(Error::outage("the server of the lock's slot cannot be asked who it is"))
    }
}

async fn ask(way: &ClusterWay, slot: Slot) -> Result<Vec<Value>> {
    let about = [&["CLUSTER", "SLOTS"][..], &["CLUSTER", "MYID"]].into_iter().chain(QUESTIONS);
    way.together(slot, about.map(words)).await
}
