//! The identity of the cluster. If the hosts of a URL are members of two clusters, each cluster would grant every lock.
//!
//! This happens when a member is bootstrapped anew instead of joining its cluster. Each answer carries the cluster's id.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dlock_contract::{Error, Result};
use etcd_client::ResponseHeader;
use futures::future::join_all;

use super::connection::Connections;
use super::fault::Fault;

/// The time limit for the answers of all hosts together.
const TELL_LIMIT: Duration = Duration::from_secs(1);

/// The cluster that this store locks in; zero before the first connection.
#[derive(Default)]
pub(super) struct ClusterId(AtomicU64);

/// Refuses an answer of another cluster than the connection was made to.
pub(super) fn same_cluster(expected: u64, header: Option<&ResponseHeader>) -> Result<(), Fault> {
    match header.map(ResponseHeader::cluster_id) {
        Some(id) if id != expected && expected != 0 => {
            Err(Fault::Broken("the member has become a member of another cluster".into()))
        }
        _ => Ok(()),
    }
}

impl Connections {
    /// Accepts a new connection to this cluster. After a backup was restored, all members report a new id.
    pub(super) async fn admit(&self, id: u64) -> Result<()> {
        let known = self.cluster.0.compare_exchange(0, id, Ordering::AcqRel, Ordering::Acquire).err();
        if id == 0 || known.is_none_or(|known| known == id) {
            return Ok(());
        }
        // A member of a foreign cluster must not be taken for a restored one: no host may be silent.
        if self.clusters().await.iter().all(|other| *other == Some(id)) {
            self.cluster.0.store(id, Ordering::Release);
            return Ok(());
        }
        Err(Error::outage(
            "an etcd member of the URL belongs to another cluster than before: let it join its old cluster, or restore all \
             members from one backup",
        ))
    }

    /// Checks that all hosts that answer are members of one cluster.
    ///
    /// # Errors
    /// `ConfigInvalid` if they are not.
    pub(super) async fn check_clusters(&self) -> Result<()> {
        if self.hosts().len() == 1 {
            return Ok(());
        }
        let ids = self.clusters().await;
        let told: Vec<_> = self.hosts().into_iter().zip(ids).filter_map(|(host, id)| Some((host, id?))).collect();
        if told.iter().all(|(_, id)| *id == told[0].1) {
            return Ok(());
        }
        let told: Vec<_> = told.iter().map(|(host, id)| format!("{host} of {id:x}")).collect();
        Err(Error::config(
            "url",
            format!(
                "the hosts are members of different etcd clusters, and each would grant the lock ({}): name the members of one",
                told.join(", ")
            ),
        ))
    }

    /// The cluster id of each host; `None` for a host that does not answer in time.
    async fn clusters(&self) -> Vec<Option<u64>> {
        let end = self.clock.now().after(TELL_LIMIT);
        let ask = async |host| {
            let client = self.clock.timeout_at(end, self.connect_to_host(host)).await?.ok()?;
            self.clock.timeout_at(end, id_of(&client)).await?.ok().filter(|id| *id != 0)
        };
        join_all(self.members.hosts.iter().map(ask)).await
    }
}

/// The id of a member's cluster; zero if the account may not ask.
pub(super) async fn id_of(client: &etcd_client::Client) -> Result<u64> {
    match client.maintenance_client().status().await.map_err(Fault::from) {
        Ok(status) => Ok(status.header().map_or(0, ResponseHeader::cluster_id)),
        Err(Fault::Broken(text)) => Err(Fault::Broken(text).into()),
        Err(_) => Ok(0),
    }
}
