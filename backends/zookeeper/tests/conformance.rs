//! The conformance suite over ZooKeeper, with the nodes of either layout.

use std::any::Any;
use std::process::ExitCode;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, Clock, Error, LockKey, Result};
use dlock_testkit::conformance::{self, Served};
use dlock_testkit::servers;
use dlock_zookeeper::ZooKeeper;
use dlock_zookeeper::client::{Client, Error as ClientError};
use futures::future::BoxFuture;

fn main() -> ExitCode {
    conformance::main(&[
        ("zookeeper", || Ok(Box::new(Server::start("")?))),
        ("zookeeper kazoo", || Ok(Box::new(Server::start("/app?layout=kazoo")?))),
    ])
}

struct Server {
    served: Served,
    /// What follows the host in the URL.
    rest: &'static str,
}

impl Store for Server {
    fn name(&self) -> String {
        "zookeeper".into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = self.served.url() + self.rest;
        Box::pin(async move { Ok(Arc::new(ZooKeeper::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move { Ok(self.children(key).await?.1) })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async move {
            let (client, nodes) = self.children(key).await?;
            for node in nodes {
                client.delete(&node, None).await.map_err(failed)?;
            }
            Ok(())
        }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        self.served.outage(outage)
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        self.served.restart()
    }
}

impl Server {
    fn start(rest: &'static str) -> Result<Self, String> {
        Ok(Self { served: Served::start(servers::ZooKeeper::default())?, rest })
    }

    /// What stands under the lock's name, around the proxy.
    async fn children(&self, key: &LockKey) -> Result<(Client, Vec<String>)> {
        let client = Client::connect(&self.served.addr().to_string()).await.map_err(failed)?;
        let name = key.as_str().rsplit_once("conformance:").map_or("", |(_, name)| name).replace('/', "%2F");
        let root = self.rest.split('?').next().unwrap_or_default();
        let namespace = format!("{root}/dlock/conformance");
        let mut found = Vec::new();
        let buckets =
            children(&client, &namespace).await?.into_iter().map(|bucket| format!("{namespace}/{bucket}/{name}"));
        for lock in buckets {
            found.extend(children(&client, &lock).await?.into_iter().map(|node| format!("{lock}/{node}")));
        }
        Ok((client, found))
    }
}

async fn children(client: &Client, path: &str) -> Result<Vec<String>> {
    match client.list_children(path).await {
        Err(ClientError::NoNode) => Ok(Vec::new()),
        listed => listed.map_err(failed),
    }
}

fn failed(error: ClientError) -> Error {
    Error::outage("the raw client failed").because(error)
}
