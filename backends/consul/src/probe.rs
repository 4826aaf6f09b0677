//! What a store asks the agent when it is opened, and when a readiness probe asks.

use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Health, Result};
use serde::Deserialize;

use crate::api::kv::read_json;
use crate::api::session::{self, Behavior, Draft, go_duration};
use crate::api::txn::{self, Op, Outcome};
use crate::server::http::{Call, Http};

/// Consul's own bounds of a ttl.
const SHORTEST: Duration = Duration::from_secs(10);

/// Below what any server takes: the refusal tells what this one takes.
const TOO_SHORT: Duration = Duration::from_millis(1);

/// A key that no lock has.
const PROBE: &str = "dl1:!probe";

/// What a store has to know of its servers.
pub(crate) struct Found {
    pub(crate) node: String,
    pub(crate) shortest: Duration,
}

/// Tries the requests of an acquisition. So rights that lack are told now.
pub(crate) async fn open(http: &Http) -> Result<Found> {
    let shortest = shortest(http).await?;
    let probe = draft("dlock probe", shortest.max(SHORTEST), http);
    let session = session::create(http, &probe).await?;
    let tried = try_out(http, &session).await;
    session::destroy(http, &session).await?;
    tried.map(|node| Found { node, shortest })
}

fn draft<'a>(name: &'a str, ttl: Duration, http: &'a Http) -> Draft<'a> {
    let checks = &http.settings().checks[..];
    Draft { name, node: None, ttl, lock_delay: Duration::ZERO, behavior: Behavior::Delete, checks }
}

/// The shortest ttl that the servers take: 10 s, unless their `session_ttl_min` says otherwise.
async fn shortest(http: &Http) -> Result<Duration> {
    match session::create(http, &draft("dlock probe", TOO_SHORT, http)).await {
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

/// Takes and deletes a key, and gives the node of the session.
async fn try_out(http: &Http, session: &str) -> Result<String> {
    let told = session::info(http, session).await?;
    let told = told.ok_or_else(|| Error::outage("Consul does not know the session that it has just made"))?;
    if !http.settings().literal {
        // Of this session alone: another process may try at the same time.
        let key = format!("{PROBE}:{session}");
        let ops = [Op::lock(&key, session, 0, ""), Op::delete(&key)];
        if let Outcome::Refused(_) = txn::run(http, &ops).await? {
            return Err(Error::new(ErrorKind::Protocol, "Consul refused a lock on a key that nobody uses"));
        }
    }
    Ok(told.node)
}

/// A read that the leader answers after a round with the other servers, and the version.
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
    match http.call(Call::get("agent/self")).await {
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
