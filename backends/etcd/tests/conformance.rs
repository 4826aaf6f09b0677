//! The conformance suite over etcd: one member with names of dlock's own, one with literal names, and a cluster.

use std::any::Any;
use std::process::ExitCode;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, Error, LockKey, Result};
use dlock_etcd::Etcd;
use dlock_store::Clock;
use dlock_testkit::Proxy;
use dlock_testkit::conformance::{self, Served, blocking, cut_off};
use dlock_testkit::servers::{self, EtcdCluster};
use futures::future::BoxFuture;
use serde_json::{Value, json};

fn main() -> ExitCode {
    // The faults of a cluster are in `store/`, and with literal names only the names differ. A server with its default
    // settings elects more slowly.
    let further: [(&str, conformance::Start); 3] = [
        ("etcd-cluster", cluster),
        ("etcd-literal", || server("etcd-literal", "?keys=literal")),
        ("etcd-as-shipped", || {
            let kind = Kind::One(Served::start(servers::as_shipped(servers::Etcd::default()))?);
            Ok(Box::new(Server { name: "etcd-as-shipped", options: "", kind }))
        }),
    ];
    conformance::main_and(&[("etcd", || server("etcd", ""))], &further)
}

fn server(name: &'static str, options: &'static str) -> Result<Box<dyn Store>, String> {
    let kind = Kind::One(Served::start(servers::Etcd::default())?);
    Ok(Box::new(Server { name, options, kind }))
}

fn cluster() -> Result<Box<dyn Store>, String> {
    let cluster = EtcdCluster::start().map_err(|error| error.to_string())?;
    let proxies = cluster.members.iter().map(|member| Proxy::start(member.addr()));
    let proxies = proxies.collect::<dlock_testkit::Result<_>>().map_err(|error| error.to_string())?;
    let kind = Kind::Three(Arc::new(Three { cluster, proxies }));
    Ok(Box::new(Server { name: "etcd-cluster", options: "", kind }))
}

struct Server {
    name: &'static str,
    /// Of the URL.
    options: &'static str,
    kind: Kind,
}

enum Kind {
    One(Served),
    Three(Arc<Three>),
}

/// Three members, and a proxy in front of each.
struct Three {
    cluster: EtcdCluster,
    proxies: Vec<Proxy>,
}

impl Store for Server {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = match &self.kind {
            Kind::One(served) => served.url().replace("http://", "etcd://"),
            Kind::Three(three) => {
                let hosts: Vec<_> = three.proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
                format!("etcd://{}", hosts.join(","))
            }
        };
        let url = format!("{url}{}", self.options);
        Box::pin(async move { Ok(Arc::new(Etcd::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    /// The URL only says how a member is reached, and which names the locks have.
    fn open_with_other_settings(&self, _: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        None
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(self.keys(key))
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async move {
            match self.keys(key).await?.first() {
                Some(oldest) => self.ask(format!("/v3/kv/deleterange {}", json!({ "key": oldest }))).await.map(drop),
                None => Ok(()),
            }
        }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        match &self.kind {
            Kind::One(served) => served.outage(outage),
            Kind::Three(three) => cut_off(three, |three| three.proxies.iter().collect(), outage),
        }
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        match &self.kind {
            Kind::One(served) => served.restart(),
            Kind::Three(three) => {
                let three = three.clone();
                Some(Box::pin(blocking(move || {
                    three.cluster.members.iter().try_for_each(|member| member.kill9())?;
                    three.cluster.restart_missing()
                })))
            }
        }
    }
}

impl Server {
    async fn ask(&self, request: String) -> Result<String> {
        match &self.kind {
            Kind::One(served) => served.ask(request).await,
            Kind::Three(three) => {
                let three = three.clone();
                blocking(move || three.cluster.members[0].ask(&request)).await
            }
        }
    }

    /// The encoded names of all that is there for a key, the oldest first.
    async fn keys(&self, key: &LockKey) -> Result<Vec<String>> {
        let name = match self.options {
            "" => key.as_str().replace('/', "%2F"),
            _ => key.literal()?.as_str().to_owned(),
        };
        let (start, end) = (base64(&format!("{name}/")), base64(&format!("{name}0")));
        let range = json!({ "key": start, "range_end": end, "sort_target": "CREATE", "sort_order": "ASCEND" });
        let answer = self.ask(format!("/v3/kv/range {range}")).await?;
        let answer: Value = serde_json::from_str(&answer).map_err(|error| Error::outage("no JSON").because(error))?;
        let found = answer["kvs"].as_array().into_iter().flatten();
        Ok(found.filter_map(|pair| pair["key"].as_str()).map(str::to_owned).collect())
    }
}

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
