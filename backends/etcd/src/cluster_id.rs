//! The identity of the cluster. If the hosts of a URL are members of two clusters, each cluster would grant every lock.
//!
//! This happens when a member is bootstrapped anew instead of joining its cluster. Each answer carries the cluster's id.

use std::sync::atomic::{AtomicU64, Ordering};

use dlock_contract::Result;
use dlock_store::refuse_older;
use etcd_client::ResponseHeader;

use super::fault::Fault;

/// The first version whose leases and transactions are those of today.
const OLDEST: &str = "3.4";

/// The cluster that this store locks in; zero before the first connection.
#[derive(Default)]
pub(super) struct ClusterId(AtomicU64);

impl ClusterId {
    /// Whether it is this cluster. The first id that is known is taken.
    pub(super) fn adopt_or_compare(&self, id: u64) -> bool {
        let known = self.0.compare_exchange(0, id, Ordering::AcqRel, Ordering::Acquire).err();
        id == 0 || known.is_none_or(|known| known == id)
    }

    pub(super) fn change_to(&self, id: u64) {
        self.0.store(id, Ordering::Release);
    }
}

/// Refuses an answer of another cluster than the connection was made to.
pub(super) fn same_cluster(expected: u64, header: Option<&ResponseHeader>) -> Result<(), Fault> {
    match header.map(ResponseHeader::cluster_id) {
        Some(id) if id != expected && expected != 0 => {
            Err(Fault::Broken("the member has become a member of another cluster".into()))
        }
        _ => Ok(()),
    }
}

/// The id of a member's cluster; zero if the account may not ask. Refuses a member that is too old.
pub(super) async fn id_of(client: &etcd_client::Client) -> Result<u64> {
    match client.maintenance_client().status().await.map_err(Fault::from) {
        Ok(status) => {
            refuse_older("etcd", status.version(), OLDEST)?;
            Ok(status.header().map_or(0, ResponseHeader::cluster_id))
        }
        Err(Fault::Broken(text)) => Err(Fault::Broken(text).into()),
        Err(_) => Ok(0),
    }
}
