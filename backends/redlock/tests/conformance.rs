//! The conformance suite over Redlock: five private servers, each with a proxy in front of it.

use std::any::Any;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, LockKey, Result};
use dlock_redlock::Redlock;
use dlock_store::Clock;
use dlock_testkit::Proxy;
use dlock_testkit::conformance::{self, blocking, cut_off};
use dlock_testkit::holds::name_in_redis;
use dlock_testkit::servers::{self, Instance, redlock_url};
use futures::future::BoxFuture;

fn main() -> ExitCode {
    conformance::main(&[("redlock", nodes)])
}

fn nodes() -> Result<Box<dyn Store>, String> {
    // Nodes that forget have no vote for a while after each restart; what that is for has tests of its own.
    let recipes = [(); 5].map(|()| servers::Redis { aof_always: true, ..servers::Redis::default() });
    let nodes = Instance::start_all(recipes).map_err(|error| error.to_string())?;
    let (proxies, url) = Proxy::in_front_of_each(&redlock_url(&nodes)).map_err(|error| error.to_string())?;
    // As long as the longest ttl of the suite.
    Ok(Box::new(Nodes { nodes: nodes.into(), proxies: proxies.into(), url: format!("{url}?max_ttl=2m") }))
}

struct Nodes {
    nodes: Arc<[Instance]>,
    proxies: Arc<[Proxy]>,
    url: String,
}

impl Store for Nodes {
    fn name(&self) -> String {
        "redlock".into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        self.open_at(self.url.clone(), clock)
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        Some(self.open_at(format!("{}&eviction=allow", self.url), clock))
    }

    /// The names on any node, each once.
    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        let request = format!("KEYS {}*", name_in_redis(key));
        Box::pin(async move {
            let answers = self.ask_all(request).await?;
            let names: BTreeSet<_> = answers.iter().flat_map(|answer| answer.lines()).collect();
            Ok(names.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect())
        })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let request = format!("DEL {}", name_in_redis(key));
        Some(Box::pin(async move { self.ask_all(request).await.map(drop) }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        cut_off(&self.proxies, |proxies| proxies.iter().collect(), outage)
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        let nodes = self.nodes.clone();
        Some(Box::pin(blocking(move || nodes.iter().try_for_each(Instance::restart))))
    }
}

impl Nodes {
    fn open_at(&self, url: String, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        Box::pin(async move { Ok(Arc::new(Redlock::connect(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    async fn ask_all(&self, request: String) -> Result<Vec<String>> {
        let nodes = self.nodes.clone();
        blocking(move || nodes.iter().map(|node| node.ask(&request)).collect()).await
    }
}
