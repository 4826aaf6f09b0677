//! etcd: the keys of the namespace, and the leases.

use dlock::backends::etcd::client::{Client, GetOptions};
use futures::future::BoxFuture;

use super::{Probe, beginning};

pub(crate) struct Etcd {
    pub(crate) url: String,
    pub(crate) namespace: String,
}

impl Etcd {
    async fn connect(&self) -> Client {
        Client::connect([self.url.replace("etcd://", "http://")], None).await.unwrap()
    }
}

impl Probe for Etcd {
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let prefix = beginning(&self.namespace);
            let found = self.connect().await.get(prefix, Some(GetOptions::new().with_prefix())).await.unwrap();
            found.kvs().iter().map(|key| key.key_str().unwrap().to_owned()).collect()
        })
    }

    /// All leases of the server, so it must be the trial's own. Connections it does not tell; the proxy does.
    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let leases = self.connect().await.leases().await.unwrap();
            leases.leases().iter().map(|lease| format!("lease {:x}", lease.id())).collect()
        })
    }
}
