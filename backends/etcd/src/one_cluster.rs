//! All hosts of a URL must be members of one cluster.

use std::time::Duration;

use dlock_contract::{Error, Result};
use futures::future::join_all;

use super::cluster_id::id_of;
use super::connection::Connections;

/// The time limit for the answers of all hosts together.
const TELL_LIMIT: Duration = Duration::from_secs(1);

impl Connections {
    /// Accepts a new connection to this cluster. After a backup was restored, all members report a new id.
    pub(super) async fn admit(&self, id: u64) -> Result<()> {
        if self.cluster.adopt_or_compare(id) {
            return Ok(());
        }
        // A member of a foreign cluster must not be taken for a restored one: no host may be silent.
        if self.clusters().await.iter().all(|other| *other == Some(id)) {
            self.cluster.change_to(id);
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
