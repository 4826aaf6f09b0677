//! Consul: the keys of the namespace, and the sessions.

use dlock_testkit::servers::{self, Recipe};
use futures::future::BoxFuture;
use serde_json::Value;

use super::{Probe, beginning};

pub(crate) struct Consul {
    pub(crate) url: String,
    pub(crate) namespace: String,
}

impl Consul {
    fn ask(&self, path: &str) -> Value {
        let host = self.url.trim_start_matches("consul://").split('?').next().unwrap();
        match servers::Consul::default().ask(host.parse().unwrap(), &format!("GET /v1/{path}")) {
            Ok(answer) => serde_json::from_str(&answer).unwrap(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Value::Null,
            Err(error) => panic!("{path}: {error}"),
        }
    }
}

impl Probe for Consul {
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let keys = self.ask(&format!("kv/{}?keys", beginning(&self.namespace)));
            keys.as_array().into_iter().flatten().map(|key| key.as_str().unwrap().to_owned()).collect()
        })
    }

    /// All sessions of the server but those of the notes of forms, so it must be the trial's own: each is the lease of one hold.
    /// Connections it does not tell; the proxy does.
    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let sessions = self.ask("session/list");
            let sessions = sessions.as_array().into_iter().flatten().filter(|session| session["Name"] != "dlock form");
            sessions.map(|session| format!("lease {}", session["ID"])).collect()
        })
    }
}
