//! The requests that test the agent and the account: when the store is opened, and for `ready`.

use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Health, Result};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::api::kv::read_json;
use crate::api::session::{self, Behavior, NewSession, go_duration};
use crate::api::txn::{self, Op, TxnOutcome};
use crate::forms;
use crate::server::http::{ApiRequest, Http};

/// Consul's default for the shortest ttl.
const DEFAULT_SHORTEST_TTL: Duration = Duration::from_secs(10);

/// Shorter than any server accepts. The refusal names the shortest ttl that this server accepts.
const TOO_SHORT: Duration = Duration::from_millis(1);

/// A key that no lock has.
const PROBE: &str = "dl1:!probe";

/// Tests the requests of an acquisition, and returns the shortest ttl. So missing rights are reported when the store is opened.
pub(crate) async fn open(http: &Http) -> Result<Duration> {
    let shortest = shortest(http).await?;
    acquire(http, shortest).await?;
    forms::note(http).await.map(|_| shortest)
}

const fn new_session(ttl: Duration) -> NewSession<'static> {
    NewSession { name: "dlock probe", ttl, lock_delay: Duration::ZERO, behavior: Behavior::Delete }
}

/// The shortest ttl that the servers accept: 10 s, unless their `session_ttl_min` is set.
async fn shortest(http: &Http) -> Result<Duration> {
    match session::create(http, &new_session(TOO_SHORT)).await {
        Ok(session) => {
            session::destroy(http, &session).await?;
            Ok(TOO_SHORT)
        }
        Err(error) => match error.message().split_once("must be between [") {
            Some((_, bounds)) => Ok(bounds.split('=').next().and_then(go_duration).unwrap_or(DEFAULT_SHORTEST_TTL)),
            None => Err(error),
        },
    }
}

/// Sends the requests of an acquisition and of its release.
async fn acquire(http: &Http, shortest: Duration) -> Result<()> {
    let session = session::create(http, &new_session(shortest.max(DEFAULT_SHORTEST_TTL))).await?;
    let tried = take(http, &session).await;
    session::destroy(http, &session).await?;
    tried
}

async fn take(http: &Http, session: &str) -> Result<()> {
    // The token needs no rights but those to the names of its locks.
    if http.settings().literal {
        return Ok(());
    }
    // Named after this session, because another process may test at the same time.
    let key = format!("{PROBE}:{session}");
    match txn::run(http, &[Op::lock(&key, session, 0, ""), Op::delete(&key)]).await? {
        TxnOutcome::Done(_) => Ok(()),
        TxnOutcome::Refused(_) => {
            Err(Error::new(ErrorKind::Protocol, "Consul refused a lock on a key that nobody uses"))
        }
    }
}

/// Does what an acquisition does. Also reads the version.
pub(crate) async fn ready(http: &Http, shortest: Duration) -> Result<Health> {
    acquire(http, shortest).await?;
    let mut findings = forms::note(http).await?;
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Agent {
        config: Config,
        #[serde(default)]
        debug_config: DebugConfig,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct DebugConfig {
        dev_mode: bool,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Config {
        version: String,
        server: bool,
    }
    let mut health = match http.send(ApiRequest::get("agent/self")).await {
        Ok(answer) => {
            let Agent { config, debug_config } = read_json(&answer)?;
            if debug_config.dev_mode {
                findings.push("the agent runs in its development mode (-dev), so a restart forgets all locks: start it with a data_dir".into());
            }
            let role = if config.server { "server" } else { "client" };
            Health::new().version(format!("Consul {}", config.version)).role(role)
        }
        // Locks do not need the right to read the agent.
        Err(error) if *error.kind() == ErrorKind::PermissionDenied => Health::new(),
        Err(error) => return Err(error),
    };
    health.findings = findings;
    // Nor do they need this one, which an agent or a proxy may block.
    match http.send(ApiRequest::get("status/peers")).await {
        Ok(answer) => {
            let servers: Vec<IgnoredAny> = read_json(&answer)?;
            Ok(health.count("members", u64::try_from(servers.len()).unwrap_or(u64::MAX)))
        }
        Err(error) if *error.kind() == ErrorKind::PermissionDenied => Ok(health),
        Err(error) => Err(error),
    }
}
