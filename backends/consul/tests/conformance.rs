//! The conformance suite over Consul: under names of ours, under the names that other tools write, and over three servers.

use std::any::Any;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlock_conformance::{Outage, Store};
use dlock_consul::Consul;
use dlock_contract::{Backend, Error, LockKey, Result};
use dlock_store::Clock;
use dlock_testkit::Proxy;
use dlock_testkit::conformance::{self, Start, blocking, cut_off};
use dlock_testkit::servers::{self, Instance};
use futures::future::BoxFuture;
use serde_json::Value;

#[path = "store/three.rs"]
mod three;

use three::three;

fn main() -> ExitCode {
    let stores: [(&str, Start); 1] = [("consul", || Server::start("consul", one(), ""))];
    // Of the literal ones only the names differ.
    let further: [(&str, Start); 3] = [
        ("consul-as-shipped", || {
            Server::start("consul-as-shipped", vec![servers::as_shipped(servers::Consul::default())], "")
        }),
        ("consul-literal", || Server::start("consul-literal", one(), "&keys=literal")),
        ("consul-cluster", || Server::start("consul-cluster", three(), "")),
    ];
    conformance::main_and(&stores, &further)
}

fn one() -> Vec<servers::Consul> {
    vec![servers::Consul::default()]
}

struct Server {
    name: &'static str,
    nodes: Arc<Nodes>,
    options: &'static str,
    /// How many clients were opened. Each uses the agent after that of the one before.
    opened: AtomicUsize,
}

/// The servers, and a proxy in front of each.
struct Nodes {
    instances: Vec<Instance>,
    proxies: Vec<Proxy>,
}

impl Server {
    fn start(
        name: &'static str,
        recipes: Vec<impl servers::Recipe>,
        options: &'static str,
    ) -> Result<Box<dyn Store>, String> {
        let instances = Instance::start_all(recipes).map_err(|error| error.to_string())?;
        let proxies = instances.iter().map(|instance| Proxy::start(instance.addr()));
        let proxies = proxies.collect::<dlock_testkit::Result<_>>().map_err(|error| error.to_string())?;
        let nodes = Arc::new(Nodes { instances, proxies });
        Ok(Box::new(Self { name, nodes, options, opened: AtomicUsize::new(0) }))
    }

    /// Asks a server itself, around its proxy.
    async fn ask(&self, request: String) -> Result<String> {
        let nodes = self.nodes.clone();
        blocking(move || nodes.instances[0].ask(&request)).await
    }

    fn name_of(&self, key: &LockKey) -> Result<String> {
        Ok(if self.options.is_empty() { key.as_str().replace('/', "%2F") } else { key.literal()?.as_str().to_owned() })
    }

    /// The entries of the lock's own key and of all keys below it. In literal mode keys stay that nobody holds.
    async fn entries(&self, key: &LockKey) -> Result<Vec<Value>> {
        let name = self.name_of(key)?;
        let path: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = match self.ask(format!("GET /v1/kv/{path}?recurse")).await {
            Err(error) if format!("{error:?}").contains(" 404 ") => return Ok(Vec::new()),
            answer => answer?,
        };
        let entries: Vec<Value> =
            serde_json::from_str(&answer).map_err(|error| Error::outage("no JSON").because(error))?;
        let below = format!("{name}/");
        let is_its = |entry: &Value| entry["Key"].as_str().is_some_and(|key| key == name || key.starts_with(&below));
        let counts = |entry: &Value| self.options.is_empty() || entry["Session"].is_string();
        Ok(entries.into_iter().filter(|entry| is_its(entry) && counts(entry)).collect())
    }

    fn open_with(&self, option: &str, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let proxies = &self.nodes.proxies;
        let agent = proxies[self.opened.fetch_add(1, Ordering::Relaxed) % proxies.len()].addr();
        let url = format!("consul://{agent}?{option}{}", self.options);
        Box::pin(async move { Ok(Arc::new(Consul::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }
}

impl Store for Server {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        self.open_with("lock_delay=0s", clock)
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        Some(self.open_with("lock_delay=1s", clock))
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move {
            Ok(self
                .entries(key)
                .await?
                .iter()
                .map(|entry| entry["Key"].as_str().unwrap_or_default().to_owned())
                .collect())
        })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async move {
            for entry in self.entries(key).await? {
                let name = entry["Key"].as_str().unwrap_or_default();
                let path: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
                self.ask(format!("DELETE /v1/kv/{path}")).await?;
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
