//! The conformance suite over ZooKeeper in Curator's layout. With `--all` in kazoo's under a chroot too, and over three servers.

use std::any::Any;
use std::process::ExitCode;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, Error, LockKey, Result};
use dlock_store::Clock;
use dlock_testkit::Proxy;
use dlock_testkit::conformance::{self, blocking, cut_off};
use dlock_testkit::servers::{self, Instance};
use dlock_zookeeper::ZooKeeper;
use dlock_zookeeper::client::{Client, Error as ClientError};
use futures::future::BoxFuture;

fn main() -> ExitCode {
    let stores: [(&str, conformance::Start); 1] =
        [("zookeeper", || start("zookeeper", one(), "", ["curator", "kazoo"]))];
    // Kazoo's layout differs in the names of nodes. It meets the real kazoo in `store/foreign`. The leader and the minority that fail
    // have tests in `store/ensemble`.
    let further: [(&str, conformance::Start); 2] = [
        ("zookeeper-kazoo", || start("zookeeper-kazoo", one(), "/app", ["kazoo", "curator"])),
        ("zookeeper-ensemble", || {
            start("zookeeper-ensemble", servers::ZooKeeper::ensemble(3), "/app", ["kazoo", "curator"])
        }),
    ];
    conformance::main_and(&stores, &further)
}

fn one() -> Vec<servers::ZooKeeper> {
    vec![servers::ZooKeeper::default()]
}

fn start(
    name: &'static str,
    recipes: Vec<servers::ZooKeeper>,
    root: &'static str,
    layouts: [&'static str; 2],
) -> Result<Box<dyn Store>, String> {
    let instances = Instance::start_all(recipes).map_err(|error| error.to_string())?;
    let proxies = instances.iter().map(|instance| Proxy::start(instance.addr()));
    let proxies = proxies.collect::<dlock_testkit::Result<_>>().map_err(|error| error.to_string())?;
    Ok(Box::new(Servers { name, nodes: Arc::new(Nodes { instances, proxies }), root, layouts }))
}

struct Servers {
    name: &'static str,
    nodes: Arc<Nodes>,
    /// The chroot.
    root: &'static str,
    /// That of the clients, and that of clients with other settings.
    layouts: [&'static str; 2],
}

/// The servers, and a proxy in front of each.
struct Nodes {
    instances: Vec<Instance>,
    proxies: Vec<Proxy>,
}

impl Store for Servers {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        self.open_with(self.layouts[0], clock)
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        Some(self.open_with(self.layouts[1], clock))
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
        cut_off(&self.nodes, |nodes| nodes.proxies.iter().collect(), outage)
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        let nodes = self.nodes.clone();
        Some(Box::pin(blocking(move || {
            // All are down at once. One alone would not be ready.
            nodes.instances.iter().try_for_each(Instance::kill9)?;
            Instance::restart_all(&nodes.instances)
        })))
    }
}

impl Servers {
    fn open_with(&self, layout: &str, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let hosts: Vec<_> = self.nodes.proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
        let url = format!("zk://{}{}?layout={layout}", hosts.join(","), self.root);
        Box::pin(async move { Ok(Arc::new(ZooKeeper::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    /// The nodes under the lock's name, read around the proxies.
    async fn children(&self, key: &LockKey) -> Result<(Client, Vec<String>)> {
        let client = Client::connect(&self.nodes.instances[0].addr().to_string()).await.map_err(failed)?;
        // It may be behind the others.
        client.sync("/").await.map_err(failed)?;
        let name = key.as_str().rsplit_once("conformance:").map_or("", |(_, name)| name).replace('/', "%2F");
        let namespace = format!("{}/dlock/conformance", self.root);
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
