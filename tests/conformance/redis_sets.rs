//! Redis as more than one plain server: behind sentinels, as a cluster, with TLS.

use std::any::Any;
use std::net::Ipv4Addr;
use std::sync::Arc;

use dlock::backends::redis::Redis;
use dlock::{Backend, Clock, LockKey, Result};
use dlock_conformance::{Outage, Store};
use dlock_testkit::servers::{RedisCluster, RedisSentinels, RedisTls};
use dlock_testkit::{Mode, Proxy};
use futures::future::BoxFuture;

use super::served::{blocking, redis_name};

/// Long enough that no outage of a case is taken for the primary's death.
const DOWN_AFTER_MS: u32 = 120_000;

pub(crate) fn sentinel() -> Result<Box<dyn Store>, String> {
    let set = RedisSentinels::start(1, DOWN_AFTER_MS, true, &[]).map_err(|error| error.to_string())?;
    Ok(Box::new(Set { name: "redis-sentinel", kind: Arc::new(Kind::Sentinel(set)) }))
}

pub(crate) fn cluster() -> Result<Box<dyn Store>, String> {
    let set = RedisCluster::start(3, 0, true, &[]).map_err(|error| error.to_string())?;
    Ok(Box::new(Set { name: "redis-cluster", kind: Arc::new(Kind::Cluster(set)) }))
}

pub(crate) fn tls() -> Result<Box<dyn Store>, String> {
    let tls = RedisTls::start().map_err(|error| error.to_string())?;
    let proxy = Proxy::start((Ipv4Addr::LOCALHOST, tls.port)).map_err(|error| error.to_string())?;
    let kind = Kind::Tls(tls, proxy);
    Ok(Box::new(Set { name: "redis-tls", kind: Arc::new(kind) }))
}

enum Kind {
    Tls(RedisTls, Proxy),
    Sentinel(RedisSentinels),
    Cluster(RedisCluster),
}

struct Set {
    name: &'static str,
    kind: Arc<Kind>,
}

impl Kind {
    fn proxies(&self) -> Vec<&Proxy> {
        match self {
            Self::Tls(_, proxy) => vec![proxy],
            Self::Sentinel(set) => set.proxy.iter().collect(),
            Self::Cluster(set) => set.proxies.iter().collect(),
        }
    }

    /// Asks the server that has the name.
    fn ask(&self, name: &str, request: &str) -> dlock_testkit::Result<String> {
        match self {
            Self::Tls(tls, _) => tls.server.ask(request),
            Self::Sentinel(set) => set.servers[0].ask(request),
            Self::Cluster(set) => set.ask_owner(name, request),
        }
    }
}

impl Set {
    async fn ask(&self, key: &LockKey, request: impl FnOnce(&str) -> String + Send + 'static) -> Result<String> {
        let (kind, name) = (self.kind.clone(), redis_name(key));
        blocking(move || kind.ask(&name, &request(&name))).await
    }
}

impl Store for Set {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = match &*self.kind {
            Kind::Tls(tls, proxy) => tls.url_at(proxy.port()),
            Kind::Sentinel(set) => set.url(),
            Kind::Cluster(set) => set.url(),
        };
        Box::pin(async move { Ok(Arc::new(Redis::connect(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move {
            let found = self.ask(key, |name| format!("KEYS {name}*")).await?;
            let found = found.lines().filter(|line| !line.is_empty() && !line.ends_with("}:r"));
            Ok(found.map(str::to_owned).collect())
        })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async move { self.ask(key, |name| format!("DEL {name}")).await.map(drop) }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        struct Ends(Arc<Kind>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.proxies().iter().for_each(|proxy| proxy.set(Mode::Pass));
            }
        }
        for proxy in self.kind.proxies() {
            proxy.set(match outage {
                Outage::Refused => Mode::Refuse,
                Outage::Silent => Mode::BLACKHOLE,
            });
        }
        let ends: Box<dyn Any + Send> = Box::new(Ends(self.kind.clone()));
        Some(Box::pin(async { Ok(ends) }))
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        let kind = self.kind.clone();
        Some(Box::pin(blocking(move || match &*kind {
            Kind::Tls(tls, _) => tls.server.restart(),
            Kind::Sentinel(set) => set.servers[0].restart(),
            Kind::Cluster(set) => set.restart(),
        })))
    }
}
