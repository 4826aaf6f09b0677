//! Redlock: five private servers, each with a proxy in front of it.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use dlock::backends::redlock::Redlock;
use dlock::{Backend, Clock, LockKey, Result};
use dlock_conformance::{Outage, Store};
use dlock_testkit::servers::{self, Instance, redlock_url};
use dlock_testkit::{Mode, Proxy};
use futures::future::BoxFuture;

use crate::served::{blocking, redis_name};

pub(crate) fn redlock() -> Result<Box<dyn Store>, String> {
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
        Box::pin(async move { Ok(Arc::new(Redlock::connect(&self.url, &clock).await?) as Arc<dyn Backend>) })
    }

    /// What stands on any node, each name once.
    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        let request = format!("KEYS {}*", redis_name(key));
        Box::pin(async move {
            let answers = self.ask_all(request).await?;
            let names: BTreeSet<_> = answers.iter().flat_map(|answer| answer.lines()).collect();
            Ok(names.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect())
        })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let request = format!("DEL {}", redis_name(key));
        Some(Box::pin(async move { self.ask_all(request).await.map(drop) }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        struct Ends(Arc<[Proxy]>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.iter().for_each(|proxy| proxy.set(Mode::Pass));
            }
        }
        let mode = match outage {
            Outage::Refused => Mode::Refuse,
            Outage::Silent => Mode::BLACKHOLE,
        };
        self.proxies.iter().for_each(|proxy| proxy.set(mode));
        let ends: Box<dyn Any + Send> = Box::new(Ends(self.proxies.clone()));
        Some(Box::pin(async { Ok(ends) }))
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        let nodes = self.nodes.clone();
        Some(Box::pin(blocking(move || nodes.iter().try_for_each(Instance::restart))))
    }
}

impl Nodes {
    async fn ask_all(&self, request: String) -> Result<Vec<String>> {
        let nodes = self.nodes.clone();
        blocking(move || nodes.iter().map(|node| node.ask(&request)).collect()).await
    }
}
