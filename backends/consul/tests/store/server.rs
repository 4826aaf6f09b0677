//! Servers, stores and locks of these tests, and Consul's own view of them.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use dlock::Clock;
use dlock::backends::consul::Consul;
use dlock_contract::{Backend, Claim, Hold, Standing};
use dlock_testkit::servers::{self, Instance, Recipe, shared};
use serde_json::Value;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A ttl that no test outlives.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The flags of a lock's key, and of a semaphore's.
pub(crate) const LOCK: u64 = 3_304_740_253_564_472_344;
pub(crate) const SEMAPHORE: u64 = 16_210_313_421_097_356_768;

/// Consul itself, around the store under test.
#[derive(Clone, Copy)]
pub(crate) struct Raw(SocketAddr);

impl Raw {
    /// The server that all tests share.
    pub(crate) fn shared() -> Self {
        Self::at(&shared().consul().unwrap())
    }

    pub(crate) fn at(url: &str) -> Self {
        Self(url.trim_start_matches("consul://").parse().unwrap())
    }

    pub(crate) fn ask(self, request: &str) -> std::io::Result<String> {
        static RECIPE: LazyLock<servers::Consul> = LazyLock::new(servers::Consul::default);
        RECIPE.ask(self.0, request)
    }

    /// An answer in JSON; null if there is nothing.
    pub(crate) fn json(self, request: &str) -> Value {
        match self.ask(request) {
            Ok(answer) => serde_json::from_str(&answer).unwrap(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Value::Null,
            Err(error) => panic!("{request}: {error}"),
        }
    }

    /// The entry of a key.
    pub(crate) fn entry(self, key: &str) -> Value {
        first(self.json(&format!("GET /v1/kv/{}", escaped(key))))
    }

    /// The session that holds a key.
    pub(crate) fn holder(self, key: &str) -> Option<String> {
        self.entry(key)["Session"].as_str().map(str::to_owned)
    }

    pub(crate) fn session(self, id: &str) -> Value {
        first(self.json(&format!("GET /v1/session/info/{id}")))
    }

    /// A session of another program, without a lock-delay.
    pub(crate) fn new_session(self, behavior: &str) -> String {
        let body = format!(r#"{{"TTL":"60s","LockDelay":"0s","Behavior":"{behavior}","Checks":[]}}"#);
        self.json(&format!("PUT /v1/session/create {body}"))["ID"].as_str().unwrap().to_owned()
    }

    pub(crate) fn destroy(self, session: &str) {
        self.ask(&format!("PUT /v1/session/destroy/{session}")).unwrap();
    }

    /// Takes a key for a session, as Consul's own tools do. False: it is held.
    pub(crate) fn acquire(self, key: &str, session: &str, flags: u64) -> bool {
        let request = format!("PUT /v1/kv/{}?acquire={session}&flags={flags}", escaped(key));
        self.ask(&request).unwrap().trim() == "true"
    }

    pub(crate) fn release(self, key: &str, session: &str, flags: u64) -> bool {
        let request = format!("PUT /v1/kv/{}?release={session}&flags={flags}", escaped(key));
        self.ask(&request).unwrap().trim() == "true"
    }

    pub(crate) fn delete(self, key: &str) {
        self.ask(&format!("DELETE /v1/kv/{}", escaped(key))).unwrap();
    }
}

/// The first of a list; null if there is none.
fn first(list: Value) -> Value {
    list.get(0).cloned().unwrap_or_default()
}

fn escaped(key: &str) -> String {
    key.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The name of a lock of ours in Consul.
pub(crate) fn name(claim: &Claim) -> String {
    claim.key.as_str().replace('/', "%2F")
}

/// A store on the shared server, as another process would have it.
pub(crate) async fn process(options: &str) -> Consul {
    open(&format!("{}?{options}", shared().consul().unwrap())).await.unwrap()
}

pub(crate) async fn open(url: &str) -> dlock::Result<Consul> {
    Consul::open(url, &Clock::system()).await
}

/// A server of the test's own.
pub(crate) fn own() -> Instance {
    Instance::start(servers::Consul::default()).unwrap()
}

/// A name that no other test uses.
pub(crate) fn fresh(name: &str) -> String {
    format!("{name}-{:016x}", fastrand::u64(..))
}

pub(crate) async fn renewal(store: &Consul, hold: &Hold) -> dlock::Result<Standing> {
    store.renew(&[hold]).await.remove(0)
}
