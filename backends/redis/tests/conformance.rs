//! The conformance suite over Redis: one server of each make and layout, and Redis behind TLS, behind sentinels and as a
//! cluster.

use std::any::Any;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, LockKey, Result};
use dlock_redis::{Literal, Redis, Redisson};
use dlock_store::Clock;
use dlock_testkit::Proxy;
use dlock_testkit::conformance::{self, Served, blocking, cut_off};
use dlock_testkit::holds::name_in_redis;
use dlock_testkit::servers::{self, Make, RedisCluster, RedisSentinels, RedisTls};
use futures::future::BoxFuture;

fn main() -> ExitCode {
    // Each layout once, and the cluster, whose client is another one.
    let stores: [(&str, conformance::Start); 4] = [
        ("redis", || server("redis", Layout::Plain, Make::default())),
        ("redis-literal", || server("redis-literal", Layout::Literal, Make::default())),
        ("redisson", || server("redisson", Layout::Redisson, Make::default())),
        ("redis-cluster", || cluster("redis-cluster", 0, &[])),
    ];
    // The same scripts on other servers and over other sockets. What differs has tests in `store/topologies`: the command by which
    // Redis 8 and Valkey delete a lock, TLS, and the failover by sentinels.
    let further: [(&str, conformance::Start); 6] = [
        ("redis-as-shipped", || {
            let served = Served::start(servers::as_shipped(servers::Redis::default()))?;
            Ok(Box::new(Server { name: "redis-as-shipped", layout: Layout::Plain, served }))
        }),
        // The default of Redis, which our clusters do not have.
        ("redis-cluster-as-shipped", || {
            let defaults = ["--cluster-node-timeout", "15000", "--repl-diskless-sync-delay", "5"];
            cluster("redis-cluster-as-shipped", 1, &defaults)
        }),
        ("redis-8", || server("redis-8", Layout::Plain, Make::Redis8)),
        ("redis-tls", tls),
        ("redis-sentinel", sentinel),
        ("valkey", || server("valkey", Layout::Plain, Make::Valkey)),
    ];
    conformance::main_and(&stores, &further)
}

fn server(name: &'static str, layout: Layout, make: Make) -> Result<Box<dyn Store>, String> {
    let served = Served::start(servers::Redis { make, ..servers::Redis::default() })?;
    Ok(Box::new(Server { name, layout, served }))
}

/// How the locks are written.
#[derive(Clone, Copy)]
enum Layout {
    Plain,
    Literal,
    Redisson,
}

/// One server.
struct Server {
    name: &'static str,
    layout: Layout,
    served: Served,
}

impl Server {
    fn open_with(&self, option: &str, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = format!("{}?{option}", self.served.url());
        Box::pin(async move {
            let client: Arc<dyn Backend> = match self.layout {
                Layout::Plain => Arc::new(Redis::connect(&url, &clock).await?),
                Layout::Literal => Arc::new(Literal::connect(&format!("{url}&keys=literal"), &clock).await?),
                Layout::Redisson => Arc::new(Redisson::connect(&format!("{url}&layout=redisson"), &clock).await?),
            };
            Ok(client)
        })
    }
}

impl Store for Server {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        self.open_with("restart_guard=auto", clock)
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        Some(self.open_with("restart_guard=off", clock))
    }

    /// The fence is one counter beside all locks, under no lock's name. The record of runs is meant to stay.
    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move {
            let mut found = match self.layout {
                Layout::Plain => self.served.lines(format!("KEYS {}*", name_in_redis(key))).await?,
                Layout::Literal | Layout::Redisson => {
                    // The names beside the lock contain the lock's own.
                    self.served.lines(format!("KEYS *{}*", key.literal()?)).await?
                }
            };
            // A note of foreign clients stays for a minute after a wait.
            found.retain(|line| !line.ends_with("}:r") && !line.ends_with("}:x"));
            Ok(found)
        })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async move {
            let name = match self.layout {
                Layout::Plain => name_in_redis(key),
                Layout::Literal | Layout::Redisson => key.literal()?.to_string(),
            };
            self.served.ask(format!("DEL {name}")).await.map(drop)
        }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        self.served.outage(outage)
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        self.served.restart()
    }
}

/// Long enough that no outage of a case is taken for the primary's death.
const DOWN_AFTER_MS: u32 = 120_000;

fn sentinel() -> Result<Box<dyn Store>, String> {
    let set = RedisSentinels::start(1, DOWN_AFTER_MS, true, &[]).map_err(|error| error.to_string())?;
    Ok(Box::new(Set { name: "redis-sentinel", kind: Arc::new(Kind::Sentinel(set)) }))
}

fn cluster(name: &'static str, replicas: usize, options: &[&str]) -> Result<Box<dyn Store>, String> {
    let set = RedisCluster::start(3, replicas, true, options).map_err(|error| error.to_string())?;
    Ok(Box::new(Set { name, kind: Arc::new(Kind::Cluster(set)) }))
}

fn tls() -> Result<Box<dyn Store>, String> {
    let tls = RedisTls::start().map_err(|error| error.to_string())?;
    let proxy = Proxy::start((Ipv4Addr::LOCALHOST, tls.port)).map_err(|error| error.to_string())?;
    let kind = Kind::Tls(tls, proxy);
    Ok(Box::new(Set { name: "redis-tls", kind: Arc::new(kind) }))
}

/// More than a plain server.
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
    fn open_with(&self, options: &str, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = match &*self.kind {
            Kind::Tls(tls, proxy) => tls.url_at(proxy.port()),
            Kind::Sentinel(set) => set.url(),
            Kind::Cluster(set) => set.url(),
        };
        let url = format!("{url}{}{options}", if url.contains('?') { '&' } else { '?' });
        Box::pin(async move { Ok(Arc::new(Redis::connect(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    async fn ask(&self, key: &LockKey, request: impl FnOnce(&str) -> String + Send + 'static) -> Result<String> {
        let (kind, name) = (self.kind.clone(), name_in_redis(key));
        blocking(move || kind.ask(&name, &request(&name))).await
    }
}

impl Store for Set {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        self.open_with("restart_guard=auto", clock)
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        Some(self.open_with("restart_guard=off&failover_guard=off", clock))
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
        cut_off(&self.kind, Kind::proxies, outage)
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
