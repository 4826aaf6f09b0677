//! Waiting in the queue: watches the node ahead, and reads the queue again when that node is deleted. It may only have been
//! a waiter's.

use std::sync::Arc;

use dlock_contract::{Claim, Result, Signal, Wake};
use dlock_store::background;
use zookeeper_client::{Client, Error as ClientError, OneshotWatcher};

use super::Place;
use crate::queue::{Position, WaitQueue};
use crate::server::exists;
use crate::server::fault::fault;
use crate::session::Lease;

/// The place of a waiter when it read the queue again.
enum QueueCheck {
    /// The wait is over.
    Done(Signal),
    /// Other nodes still keep the claim from holding the lock.
    StillBehind(Position),
}

impl Place {
    /// A wake that ends when the claim may hold the lock. Its task watches from now on, and ends when the wake is dropped.
    pub(super) fn wake(self: &Arc<Self>, claim: &Arc<Claim>, lease: &Arc<Lease>, position: Position) -> Result<Wake> {
        let (place, claim, lease) = (self.clone(), claim.clone(), lease.clone());
        let waiting = background()?.run(async move { place.wait_for_lock(&claim, &lease, position).await });
        Ok(Wake::on(async move { waiting.await? }))
    }

    async fn wait_for_lock(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        lease: &Arc<Lease>,
        position: Position,
    ) -> Result<Signal> {
        let mut position = position;
        loop {
            let client = lease.client().await?;
            if let Some(change) = self.watch_blocker(&client, &position).await? {
                self.keep_alive(&client, lease, change).await?;
            }
            position = match lease.while_connected(self.check_queue(&client, claim, lease)).await? {
                QueueCheck::Done(signal) => return Ok(signal),
                QueueCheck::StillBehind(position) => position,
            };
        }
    }

    /// Reads the queue again, and grants the lock if the claim holds it now.
    async fn check_queue(
        self: &Arc<Self>,
        client: &Client,
        claim: &Arc<Claim>,
        lease: &Arc<Lease>,
    ) -> Result<QueueCheck> {
        let mut state = self.state.lock().await;
        // The attempt that confirmed the node is over, so the next grant counts from what the session has confirmed.
        if let Some(node) = &mut state.node {
            node.since = None;
        }
        let queue = match client.list_children(&self.path).await {
            Ok(children) => WaitQueue::of(&children),
            Err(ClientError::NoNode) => WaitQueue::default(),
            Err(error) => return Err(fault(&error)),
        };
        Ok(match self.position(&queue, &state) {
            Position::First => match self.grant(client, lease, claim, &mut state).await? {
                Some(hold) => QueueCheck::Done(Signal::Granted(hold)),
                None => QueueCheck::Done(Signal::Ask),
            },
            Position::Absent | Position::Conflict | Position::CounterEnded => QueueCheck::Done(Signal::Ask),
            position => QueueCheck::StillBehind(position),
        })
    }

    /// A watcher for a change of the nodes ahead. `None`: there is one already.
    async fn watch_blocker(&self, client: &Client, position: &Position) -> Result<Option<OneshotWatcher>> {
        if let Position::Behind(name) = position {
            // Its data may be for its maker alone. This needs no right.
            let (stat, watcher) =
                client.check_and_watch_stat(&self.child(name)).await.map_err(|error| fault(&error))?;
            return Ok(stat.map(|_| watcher));
        }
        // Any holder may leave, and one may have left since the queue was read.
        match client.list_and_watch_children(&self.path).await {
            Ok((children, watcher)) => {
                let now = self.position(&WaitQueue::of(&children), &*self.state.lock().await);
                Ok(Some(watcher).filter(|_| now == Position::PermitsTaken))
            }
            Err(ClientError::NoNode) => Ok(None),
            Err(error) => Err(fault(&error)),
        }
    }

    /// Waits for the change. Perhaps no hold in the session is renewed, so the waiter keeps the session alive.
    async fn keep_alive(&self, client: &Client, lease: &Lease, change: OneshotWatcher) -> Result<()> {
        let mut change = std::pin::pin!(change.changed());
        loop {
            let stale = lease.confirmed().after(lease.ttl() / 3);
            if lease.clock().timeout_at(stale, change.as_mut()).await.is_some() {
                return Ok(());
            }
            if !lease.lives() {
                // The session was given up, and a request would keep it alive.
                return Ok(());
            }
            let nodes = { self.nodes(&*self.state.lock().await) };
            let from = lease.clock().now();
            if nodes.is_empty() || !exists::all_exist(client, &nodes).await? {
                return Ok(());
            }
            lease.confirm(from);
        }
    }
}
