//! What is looked at once, when a store is opened: version, cluster, eviction, persistence.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{ServerErrorKind, Value};
use dlock_contract::{Error, Result};

use super::connection::Connections;
use super::fault;
use super::rights;
use super::settings::Guard;

/// The servers that come back from a restart without their locks, as far as they tell.
pub struct Forgetful(Vec<String>);

/// Refuses a server, or a cluster with one, on which locks would not be safe.
pub async fn check(connections: &Arc<Connections>) -> Result<Forgetful> {
    let shared = connections.here().await?;
    let mut asked = ::redis::cmd("CONFIG");
    asked.arg("GET").arg("maxmemory-policy").arg("appendonly");
    let is_cluster = connections.cluster().is_some();
    rights::judge(&connections.command(&shared, rights::question(is_cluster)).await?)?;
    let infos = connections.everywhere(&shared, ::redis::cmd("INFO")).await?;
    connections.native.look_at(infos.iter().map(|(_, info)| info));
    for (server, info) in &infos {
        if is_forbidden(info) {
            tracing::warn!(server, "the Redis user may not run INFO, so dlock cannot see the server's version");
        } else {
            check_info(text(info).ok_or_else(|| fault::unexpected(info))?, is_cluster)?;
        }
    }
    let mut forgetful = Vec::new();
    for (server, answer) in &connections.everywhere(&shared, asked).await? {
        if is_forbidden(answer) {
            tracing::warn!(
                server,
                "the Redis user may not run CONFIG GET: make sure that maxmemory-policy is noeviction"
            );
            continue;
        }
        let settings = settings(answer).unwrap_or_default();
        let value = |name| settings.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let policy = value("maxmemory-policy").ok_or_else(|| fault::unexpected(answer))?;
        check_policy(policy, connections.target.settings.eviction_allowed)?;
        if value("appendonly") == Some("no") {
            // Only a cluster's servers tell their addresses.
            let name = if server.is_empty() { format!("{:?}", connections.target) } else { server.clone() };
            forgetful.push(name);
        }
    }
    Ok(Forgetful(forgetful))
}

impl Forgetful {
    /// Says what that means for locks.
    pub(super) fn tell(&self, connections: &Connections) {
        let Self(servers) = self;
        if servers.is_empty() {
            return;
        }
        let then = if connections.target.settings.restart_guard != Guard::Off {
            "who knew the server grants nothing until those locks have ended (restart_guard)"
        } else {
            "somebody else may then get a lock that is still held"
        };
        tracing::warn!(
            servers = servers.join(", "),
            "Redis keeps no append-only file, so a restart forgets locks: {then}. With appendonly yes they are kept, \
             with appendfsync always also when the power fails"
        );
    }
}

fn check_info(info: &str, cluster: bool) -> Result<()> {
    let field = |name: &str| field(info, name);
    let major = field("redis_version").and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    if major.is_none_or(|major| major < 7) {
        return Err(fault::too_old());
    }
    match (field("cluster_enabled") == Some("1"), cluster) {
        (true, false) => Err(fault::no_cluster()),
        (false, true) => Err(Error::config("url", "this Redis is no part of a cluster: its URL begins with redis://")),
        _ => Ok(()),
    }
}

fn check_policy(policy: &str, allowed: bool) -> Result<()> {
    if policy == "noeviction" {
        return Ok(());
    }
    if allowed {
        tracing::warn!(policy, "Redis may evict locks when its memory is full, and two callers then hold one lock");
        return Ok(());
    }
    Err(evicts())
}

pub(super) fn evicts() -> Error {
    Error::config(
        "maxmemory-policy",
        "Redis may evict locks when its memory is full: set maxmemory-policy to noeviction, or add eviction=allow to the URL",
    )
}

/// Has the account no right to ask that?
pub fn is_forbidden(answer: &Value) -> bool {
    // Hosted servers rename what their customers may not use, and then it is unknown.
    matches!(answer, Value::ServerError(error)
        if matches!(error.kind(), Some(ServerErrorKind::NoPerm | ServerErrorKind::ResponseError)))
}

/// What `CONFIG GET` answers, by name.
pub fn settings(answer: &Value) -> Option<Vec<(&str, &str)>> {
    match answer {
        Value::Map(pairs) => Some(pairs.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()),
        Value::Array(flat) => {
            Some(flat.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect())
        }
        _ => None,
    }
}

/// One line of what `INFO` answers.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// For how long the server has run, by its wall clock. One that was set back since makes it less than nothing.
pub fn uptime(info: &str) -> Option<Duration> {
    let seconds: i64 = field(info, "uptime_in_seconds")?.trim().parse().ok()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// The answer as text.
pub fn text(answer: &Value) -> Option<&str> {
    match answer {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::ErrorKind;

    #[test]
    fn an_old_server_and_the_wrong_topology_are_refused() {
        let unsupported = |info| matches!(check_info(info, false).unwrap_err().kind(), ErrorKind::Unsupported { .. });
        assert!(unsupported("redis_version:6.2.14\r\n"));
        assert!(unsupported("redis_version:7.2.4\r\ncluster_enabled:1\r\n"));
        assert!(unsupported(""));
        assert!(check_info("# Server\r\nredis_version:7.0.15\r\ncluster_enabled:0\r\n", false).is_ok());
        let single = check_info("redis_version:7.2.4\r\ncluster_enabled:0\r\n", true);
        assert!(matches!(single.unwrap_err().kind(), ErrorKind::ConfigInvalid { .. }));
        assert!(check_info("redis_version:7.2.4\r\ncluster_enabled:1\r\n", true).is_ok());
        assert!(check_info("redis_version:10.0.0\r\n", false).is_ok());
    }

    #[test]
    fn a_clock_that_was_set_back_makes_a_server_young() {
        let uptime = |text| uptime(text).map(|uptime| uptime.as_secs());
        assert_eq!(uptime("redis_version:7.0.15\r\nuptime_in_seconds:90\r\n"), Some(90));
        assert_eq!(uptime("uptime_in_seconds:-3600\r\n"), Some(0));
        assert_eq!((uptime("uptime_in_seconds:x\r\n"), uptime("")), (None, None));
    }

    #[test]
    fn eviction_is_refused_unless_it_was_allowed() {
        assert!(check_policy("noeviction", false).is_ok());
        for policy in ["allkeys-lru", "volatile-ttl"] {
            assert!(check_policy(policy, false).is_err());
            assert!(check_policy(policy, true).is_ok());
        }
    }
}
