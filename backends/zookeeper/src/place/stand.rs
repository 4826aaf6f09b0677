//! Standing in line: the node ahead is watched, and the line is read again when it has gone. Who stood ahead may only have
//! been a waiter.

use std::sync::Arc;

use dlock_contract::engine::background;
use dlock_contract::{Claim, Result, Signal, Wake};
use zookeeper_client::{Client, Error as ClientError, OneshotWatcher};

use super::Place;
use crate::line::{Line, Sight};
use crate::session::Lease;
use crate::wire::fault::fault;
use crate::wire::standing;

/// What a waiter found when it read the line again.
enum Looked {
    News(Signal),
    Behind(Sight),
}

impl Place {
    /// Watches from now on. The task ends with the wake.
    pub(super) fn stand(self: &Arc<Self>, claim: &Arc<Claim>, lease: &Arc<Lease>, sight: Sight) -> Result<Wake> {
        let (place, claim, lease) = (self.clone(), claim.clone(), lease.clone());
        let standing = background()?.run(async move { place.watch(&claim, &lease, sight).await });
        Ok(Wake::on(async move { standing.await? }))
    }

    async fn watch(self: &Arc<Self>, claim: &Arc<Claim>, lease: &Arc<Lease>, sight: Sight) -> Result<Signal> {
        let mut sight = sight;
        loop {
            let client = lease.client().await?;
            if let Some(news) = self.news_of(&client, &sight).await? {
                self.keep_alive(&client, lease, news).await?;
            }
            sight = match lease.while_connected(self.look(&client, claim, lease)).await? {
                Looked::News(signal) => return Ok(signal),
                Looked::Behind(sight) => sight,
            };
        }
    }

    /// Reads the line again.
    async fn look(self: &Arc<Self>, client: &Client, claim: &Arc<Claim>, lease: &Arc<Lease>) -> Result<Looked> {
        let mut known = self.known.lock().await;
        // From now on the node is as old as what the session has confirmed.
        if let Some(node) = &mut known.node {
            node.since = None;
        }
        let line = match client.list_children(&self.path).await {
            Ok(children) => Line::of(&children),
            Err(ClientError::NoNode) => Line::default(),
            Err(error) => return Err(fault(&error)),
        };
        Ok(match self.seen(&line, &known) {
            Sight::First => match self.grant(client, lease, claim, &mut known).await? {
                Some(hold) => Looked::News(Signal::Granted(hold)),
                None => Looked::News(Signal::Ask),
            },
            Sight::Outside | Sight::Conflict | Sight::Uncounted => Looked::News(Signal::Ask),
            sight => Looked::Behind(sight),
        })
    }

    /// A watcher for the end of what stands ahead. `None`: it has gone already.
    async fn news_of(&self, client: &Client, sight: &Sight) -> Result<Option<OneshotWatcher>> {
        if let Sight::Behind(name) = sight {
            return match client.get_and_watch_data(&self.child(name)).await {
                Ok((_, _, watcher)) => Ok(Some(watcher)),
                Err(ClientError::NoNode) => Ok(None),
                Err(error) => Err(fault(&error)),
            };
        }
        // Any of the holders may leave, and one may have left since the line was read.
        match client.list_and_watch_children(&self.path).await {
            Ok((children, watcher)) => {
                let now = self.seen(&Line::of(&children), &*self.known.lock().await);
                Ok(Some(watcher).filter(|_| now == Sight::Crowd))
            }
            Err(ClientError::NoNode) => Ok(None),
            Err(error) => Err(fault(&error)),
        }
    }

    /// Waits for the news. Nobody may hold anything in the session, so the waiter keeps it alive.
    async fn keep_alive(&self, client: &Client, lease: &Lease, news: OneshotWatcher) -> Result<()> {
        let mut news = std::pin::pin!(news.changed());
        loop {
            let stale = lease.confirmed().after(lease.ttl() / 3);
            if lease.clock().timeout_at(stale, news.as_mut()).await.is_some() {
                return Ok(());
            }
            if !lease.lives() {
                // A request would keep a session alive that was given up.
                return Ok(());
            }
            let nodes = { self.nodes(&*self.known.lock().await) };
            let from = lease.clock().now();
            if nodes.is_empty() || !standing::check(client, &nodes).await? {
                return Ok(());
            }
            lease.confirm(from);
        }
    }
}
