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

    /// All leases of the server but those of the notes of forms, so it must be the trial's own. Connections it does not tell; the
    /// proxy does.
    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut client = self.connect().await;
            let notes = client.get("dl1-epoch/form/", Some(GetOptions::new().with_prefix())).await.unwrap();
            let is_note = |lease: i64| notes.kvs().iter().any(|note| note.lease() == lease);
            let leases = client.leases().await.unwrap();
            let leases = leases.leases().iter().filter(|lease| !is_note(lease.id()));
            leases.map(|lease| format!("lease {:x}", lease.id())).collect()
        })
    }
}
