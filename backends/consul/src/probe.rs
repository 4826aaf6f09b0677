//! The requests that test the agent and the account: when the store is opened, and for `ready`.

use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Health, Result};
use serde::Deserialize;

use crate::api::kv::read_json;
use crate::api::session::{self, Behavior, NewSession, go_duration};
use crate::api::txn::{self, Op, TxnOutcome};
use crate::server::http::{ApiRequest, Http};

/// Consul's default for the shortest ttl.
const SHORTEST: Duration = Duration::from_secs(10);

/// Shorter than any server accepts. The refusal names the shortest ttl that this server accepts.
const TOO_SHORT: Duration = Duration::from_millis(1);

/// A key that no lock has.
const PROBE: &str = "dl1:!probe";

/// The facts that a store must know about its servers.
pub(crate) struct ProbeResult {
    pub(crate) node: String,
    pub(crate) shortest: Duration,
}

/// Tests the requests of an acquisition. So missing rights are reported when the store is opened.
pub(crate) async fn open(http: &Http) -> Result<ProbeResult> {
    let shortest = shortest(http).await?;
    let probe = new_session("dlock probe", shortest.max(SHORTEST), http);
    let session = session::create(http, &probe).await?;
    let tried = test_rights(http, &session).await;
    session::destroy(http, &session).await?;
    tried.map(|node| ProbeResult { node, shortest })
}

fn new_session<'a>(name: &'a str, ttl: Duration, http: &'a Http) -> NewSession<'a> {
    let checks = &http.settings().checks[..];
    NewSession { name, node: None, ttl, lock_delay: Duration::ZERO, behavior: Behavior::Delete, checks }
}

/// The shortest ttl that the servers accept: 10 s, unless their `session_ttl_min` is set.
async fn shortest(http: &Http) -> Result<Duration> {
    match session::create(http, &new_session("dlock probe", TOO_SHORT, http)).await {
        Ok(session) => {
            session::destroy(http, &session).await?;
            Ok(TOO_SHORT)
        }
        Err(error) => match error.message().split_once("must be between [") {
            Some((_, bounds)) => Ok(bounds.split('=').next().and_then(go_duration).unwrap_or(SHORTEST)),
            None => Err(error),
        },
    }
}

/// Locks and deletes a key, and returns the node of the session.
async fn test_rights(http: &Http, session: &str) -> Result<String> {
    let info = session::info(http, session).await?;
    let info = info.ok_or_else(|| Error::outage("Consul does not know the session that it has just made"))?;
    if !http.settings().literal {
        // Named after this session, because another process may test at the same time.
        let key = format!("{PROBE}:{session}");
        let ops = [Op::lock(&key, session, 0, ""), Op::delete(&key)];
        if let TxnOutcome::Refused(_) = txn::run(http, &ops).await? {
            return Err(Error::new(ErrorKind::Protocol, "Consul refused a lock on a key that nobody uses"));
        }
    }
    Ok(info.node)
}

/// Reads a key, which the leader answers after it has confirmed its role with a majority. Also reads the version.
pub(crate) async fn ready(http: &Http) -> Result<Health> {
    txn::run(http, &[Op::unchanged(PROBE, 0)]).await?;
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Agent {
        config: Config,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Config {
        version: String,
        server: bool,
    }
    match http.send(ApiRequest::get("agent/self")).await {
        Ok(answer) => {
            let Agent { config } = read_json(&answer)?;
            let role = if config.server { "server" } else { "client" };
            Ok(Health::new().version(format!("Consul {}", config.version)).role(role))
        }
        // Locks do not need the right to read the agent.
        Err(error) if *error.kind() == ErrorKind::PermissionDenied => Ok(Health::new()),
        Err(error) => Err(error),
    }
}
