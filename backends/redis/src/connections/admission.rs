//! Whether the server of a lock may grant now: the quarantine is checked before and after each grant.

use std::sync::Arc;

use ::redis::{Cmd, Value};
use dlock_contract::{Error, Hold, LockKey, Result};
use futures::future::join_all;

use crate::cluster::servers::Servers;
use crate::cluster::way::ClusterWay;
use crate::connections::check::check_later;
use crate::connections::connection::Way;
use crate::connections::pool::Connections;
use crate::layout::slots::{Slot, fence, number_of, slot_of};
use crate::quarantine::history::QUESTIONS;
use crate::quarantine::view::View;
use crate::reply::fault;
use crate::reply::read::is_forbidden;
use crate::scripts::call::words;

impl Connections {
    /// Looks at the server that grants this lock, if something may have happened to it.
    ///
    /// # Errors
    /// While the lock may be somebody's although it looks free; if the server does not answer.
    pub(crate) async fn admit(self: &Arc<Self>, key: &LockKey) -> Result<()> {
        if self.is_unchecked(key) {
            Box::pin(check_later(self, slot_of(key))).await?;
        }
        if self.cluster().is_some() && !self.quarantine.rules.are_off() {
            let slot = slot_of(key);
            if !self.quarantine.shards.knows(number_of(slot)) {
                Box::pin(self.look(slot)).await?;
            }
            return self.quarantine.shards.check(&self.quarantine.rules, number_of(slot), || self.clock.now());
        }
        if self.quarantine.evicts() {
            // The policy may have been corrected since.
            let [.., memory, config] = QUESTIONS.map(words);
            let asked = async { self.pipeline(&self.here().await?, [memory, config]).await };
            self.quarantine.heard_policy(&Box::pin(asked).await?)?;
        }
        self.quarantine.check(|| self.clock.now())
    }

    /// Whether the lock's server has not yet been checked for rights, version and eviction, as opening the store does.
    fn is_unchecked(&self, key: &LockKey) -> bool {
        let server = |servers: &Arc<Servers>| servers.of(Some(slot_of(key))).map(|node| node.shown());
        !self.asked.are_all()
            && self.cluster().is_some_and(|servers| server(servers).is_ok_and(|at| !self.asked.has(&at)))
    }

    /// Like [`admit`](Self::admit), for the locks of every server of a cluster that can be looked at. A single server
    /// reports its state to a probe anyway.
    pub(crate) async fn admit_all(self: &Arc<Self>) -> Result<()> {
        if self.cluster().is_none() || self.quarantine.rules.are_off() {
            return Ok(());
        }
        let shards = &self.quarantine.shards;
        for slot in shards.all() {
            if !shards.knows(slot)
                && let Some(slot) = Slot::new(slot)
            {
                match Box::pin(self.look(slot)).await {
                    // The check has told of a server that does not answer, and that one grants nothing.
                    Err(error) if error.is_retryable() => continue,
                    looked => looked?,
                }
            }
            shards.check(&self.quarantine.rules, slot, || self.clock.now())?;
        }
        Ok(())
    }

    /// Whether the server may grant, without another look at it.
    pub(crate) fn admits(&self, key: &LockKey) -> bool {
        if self.is_unchecked(key) {
            return false;
        }
        if self.cluster().is_some() && !self.quarantine.rules.are_off() {
            let (shards, slot) = (&self.quarantine.shards, number_of(slot_of(key)));
            return shards.knows(slot) && shards.check(&self.quarantine.rules, slot, || self.clock.now()).is_ok();
        }
        self.quarantine.check(|| self.clock.now()).is_ok()
    }

    /// Whether a pushed grant counts. `high` was read before the server can have granted.
    pub(crate) fn believes(&self, hold: &Hold, high: u64) -> bool {
        let Some(token) = hold.token.map(|token| token.get()) else { return false };
        let believed = !Self::is_behind(token, high) && self.admits(&hold.claim.key);
        if believed {
            self.saw(token);
        }
        believed
    }

    /// Looks at all servers of a cluster, so that a later change of each is seen. One that does not answer stays unknown, and
    /// delays the looks at no other one.
    pub(crate) async fn meet_all(self: &Arc<Self>) {
        let Some(servers) = self.cluster().filter(|_| !self.quarantine.rules.are_off()) else { return };
        let slots = servers.primaries().into_iter().filter_map(|(_, number)| Slot::new(number));
        join_all(slots.map(|slot| self.look(slot))).await;
    }

    async fn look(self: &Arc<Self>, slot: Slot) -> Result<()> {
        let connection = self.here().await?;
        let Way::Cluster(way) = &connection.way else { return Ok(()) };
        let shards = &self.quarantine.shards;
        for has_led_there in [false, true] {
            let changes = shards.changes();
            let answers = ask(way, slot).await?;
            match View::read(&answers) {
                Some(view) => {
                    let is_its_server = view.has(number_of(slot));
                    shards.met(&self.quarantine.rules, view, changes, self.clock.now());
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
        Err(Error::outage("the server of the lock's slot does not tell its identity"))
    }
}

async fn ask(way: &ClusterWay, slot: Slot) -> Result<Vec<Value>> {
    let about = [&["CLUSTER", "SLOTS"][..], &["CLUSTER", "MYID"]].into_iter().chain(QUESTIONS);
    way.together(slot, about.map(words)).await
}
