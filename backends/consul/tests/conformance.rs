//! The conformance suite over Consul: under names of ours, and under the names that other tools write.

use std::any::Any;
use std::process::ExitCode;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_consul::Consul;
use dlock_contract::{Backend, Clock, Error, LockKey, Result};
use dlock_testkit::conformance::{self, Served};
use dlock_testkit::servers;
use futures::future::BoxFuture;
use serde_json::Value;

fn main() -> ExitCode {
    conformance::main(&[("consul", || Server::start("")), ("consul-literal", || Server::start("&keys=literal"))])
}

struct Server {
    served: Served,
    options: &'static str,
}

impl Server {
    fn start(options: &'static str) -> Result<Box<dyn Store>, String> {
        Ok(Box::new(Self { served: Served::start(servers::Consul::default())?, options }))
    }

    fn name_of(&self, key: &LockKey) -> Result<String> {
        Ok(if self.options.is_empty() { key.as_str().replace('/', "%2F") } else { key.literal()?.as_str().to_owned() })
    }

    /// The entries of the lock's own key and of all keys below it. In literal mode keys stay that nobody holds.
    async fn entries(&self, key: &LockKey) -> Result<Vec<Value>> {
        let name = self.name_of(key)?;
        let path: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = match self.served.ask(format!("GET /v1/kv/{path}?recurse")).await {
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
}

impl Store for Server {
    fn name(&self) -> String {
        format!("consul{}", self.options.replace("&keys=", "-"))
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = format!("{}?lock_delay=0s{}", self.served.url(), self.options);
        Box::pin(async move { Ok(Arc::new(Consul::open(&url, &clock).await?) as Arc<dyn Backend>) })
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
                self.served.ask(format!("DELETE /v1/kv/{path}")).await?;
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
