//! The stores with a server: each has a private one, and a proxy in front of it.

use std::any::Any;
use std::sync::Arc;

#[cfg(feature = "etcd")]
use dlock::backends::etcd::Etcd;
use dlock::backends::mysql::GetLock;
use dlock::backends::redis::{Literal, Redis, Redisson};
use dlock::{Backend, Clock, Error, LockKey, Result};
use dlock_conformance::{Outage, Store};
use dlock_testkit::servers::{self, Instance, Make, Recipe};
use dlock_testkit::{Mode, Proxy};
use futures::future::BoxFuture;
#[cfg(feature = "etcd")]
use serde_json::{Value, json};

pub(crate) fn redis() -> Result<Box<dyn Store>, String> {
    serve("redis", Kind::Redis, servers::Redis::default())
}

pub(crate) fn redis8() -> Result<Box<dyn Store>, String> {
    serve("redis-8", Kind::Redis, servers::Redis { make: Make::Redis8, ..servers::Redis::default() })
}

pub(crate) fn literal() -> Result<Box<dyn Store>, String> {
    serve("redis-literal", Kind::Literal, servers::Redis::default())
}

pub(crate) fn redisson() -> Result<Box<dyn Store>, String> {
    serve("redisson", Kind::Redisson, servers::Redis::default())
}

pub(crate) fn valkey() -> Result<Box<dyn Store>, String> {
    serve("valkey", Kind::Redis, servers::Redis { make: Make::Valkey, ..servers::Redis::default() })
}

pub(crate) fn mariadb() -> Result<Box<dyn Store>, String> {
    serve("mariadb", Kind::GetLock, servers::MariaDb::default())
}

pub(crate) fn mysql() -> Result<Box<dyn Store>, String> {
    serve("mysql", Kind::GetLock, servers::MySql::default())
}

#[cfg(feature = "etcd")]
pub(crate) fn etcd() -> Result<Box<dyn Store>, String> {
    serve("etcd", Kind::Etcd, servers::Etcd::default())
}

fn serve(name: &'static str, kind: Kind, recipe: impl Recipe) -> Result<Box<dyn Store>, String> {
    let instance = Arc::new(Instance::start(recipe).map_err(|error| error.to_string())?);
    let proxy = Arc::new(Proxy::start(instance.addr()).map_err(|error| error.to_string())?);
    Ok(Box::new(Served { name, kind, instance, proxy }))
}

#[derive(Clone, Copy)]
enum Kind {
    Redis,
    Literal,
    Redisson,
    GetLock,
    #[cfg(feature = "etcd")]
    Etcd,
}

struct Served {
    name: &'static str,
    kind: Kind,
    instance: Arc<Instance>,
    proxy: Arc<Proxy>,
}

impl Store for Served {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = self.instance.url_at(self.proxy.port());
        Box::pin(async move {
            let client: Arc<dyn Backend> = match self.kind {
                Kind::Redis => Arc::new(Redis::connect(&url, &clock).await?),
                Kind::Literal => Arc::new(Literal::connect(&format!("{url}?keys=literal"), &clock).await?),
                Kind::Redisson => Arc::new(Redisson::connect(&format!("{url}?layout=redisson"), &clock).await?),
                Kind::GetLock => Arc::new(GetLock::open(&url, &clock).await?),
                #[cfg(feature = "etcd")]
                Kind::Etcd => Arc::new(Etcd::open(&url.replace("http://", "etcd://"), &clock).await?),
            };
            Ok(client)
        })
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move {
            match self.kind {
                // The fence is one counter beside all locks, under no lock's name. The record of runs is meant to stay.
                Kind::Redis => {
                    let mut found = self.lines(format!("KEYS {}*", redis_name(key))).await?;
                    found.retain(|line| !line.ends_with("}:r"));
                    Ok(found)
                }
                Kind::Literal | Kind::Redisson => {
                    let name = key.literal()?;
                    let mut found = self.lines(format!("KEYS {name}*")).await?;
                    found.extend(self.lines(format!("KEYS dl1:l:{{{name}}}*")).await?);
                    found.retain(|line| !line.ends_with("}:r"));
                    Ok(found)
                }
                Kind::GetLock => {
                    let used = format!(
                        "SELECT CONCAT('held by ', IS_USED_LOCK({})) FROM DUAL \
                        WHERE IS_USED_LOCK({0}) IS NOT NULL",
                        get_lock_name(key)
                    );
                    let mut found = self.lines(used).await?;
                    // A waiter is a statement that runs. The name is put together, so that this one is not found.
                    let waiting = format!(
                        "SELECT CONCAT('waited for by ', ID) FROM information_schema.PROCESSLIST \
                        WHERE INFO LIKE CONCAT('%GET_LOCK(_', {}, '%') AND ID <> CONNECTION_ID()",
                        get_lock_name(key)
                    );
                    found.extend(self.lines(waiting).await?);
                    Ok(found)
                }
                #[cfg(feature = "etcd")]
                Kind::Etcd => self.etcd_keys(key).await,
            }
        })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async move {
            match self.kind {
                Kind::Redis => self.ask(format!("DEL {}", redis_name(key))).await.map(drop),
                Kind::Literal | Kind::Redisson => self.ask(format!("DEL {}", key.literal()?)).await.map(drop),
                Kind::GetLock => {
                    let holder = self.ask(format!("SELECT IS_USED_LOCK({})", get_lock_name(key))).await?;
                    self.ask(format!("KILL {}", holder.trim())).await.map(drop)
                }
                #[cfg(feature = "etcd")]
                Kind::Etcd => match self.etcd_keys(key).await?.first() {
                    Some(oldest) => {
                        self.ask(format!("/v3/kv/deleterange {}", json!({ "key": oldest }))).await.map(drop)
                    }
                    None => Ok(()),
                },
            }
        }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        struct Ends(Arc<Proxy>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.set(Mode::Pass);
            }
        }
        self.proxy.set(match outage {
            Outage::Refused => Mode::Refuse,
            Outage::Silent => Mode::BLACKHOLE,
        });
        let ends: Box<dyn Any + Send> = Box::new(Ends(self.proxy.clone()));
        Some(Box::pin(async { Ok(ends) }))
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        let instance = self.instance.clone();
        Some(Box::pin(blocking(move || instance.restart())))
    }
}

impl Served {
    async fn ask(&self, request: String) -> Result<String> {
        let instance = self.instance.clone();
        blocking(move || instance.ask(&request)).await
    }

    async fn lines(&self, request: String) -> Result<Vec<String>> {
        let answer = self.ask(request).await?;
        let lines = answer.lines().filter(|line| !line.is_empty() && *line != "OK 0" && *line != "(nil)");
        Ok(lines.map(str::to_owned).collect())
    }

    /// The encoded names of all that stands under a key, the oldest first.
    #[cfg(feature = "etcd")]
    async fn etcd_keys(&self, key: &LockKey) -> Result<Vec<String>> {
        let name = key.as_str().replace('/', "%2F");
        let (start, end) = (base64(&format!("{name}/")), base64(&format!("{name}0")));
        let range = json!({ "key": start, "range_end": end, "sort_target": "CREATE", "sort_order": "ASCEND" });
        let answer = self.ask(format!("/v3/kv/range {range}")).await?;
        let answer: Value = serde_json::from_str(&answer).map_err(|error| Error::outage("no JSON").because(error))?;
        let found = answer["kvs"].as_array().into_iter().flatten();
        Ok(found.filter_map(|pair| pair["key"].as_str()).map(str::to_owned).collect())
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> dlock_testkit::Result<T> + Send + 'static,
) -> Result<T> {
    let done =
        tokio::task::spawn_blocking(work).await.map_err(|error| Error::outage("a task failed").because(error))?;
    done.map_err(|error| Error::outage("the server's keeper failed").because(error))
}

pub(crate) fn redis_name(key: &LockKey) -> String {
    key.as_str().replacen("dl1:", "dl1:{", 1) + "}"
}

/// As the server itself works it out.
fn get_lock_name(key: &LockKey) -> String {
    format!("CONCAT('d1', LEFT(SHA2('{key}', 256), 62))")
}

#[cfg(feature = "etcd")]
fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = usize::try_from(bits >> (18 - 6 * digit) & 63).unwrap_or(0);
            encoded.push(if digit <= three.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    encoded
}
