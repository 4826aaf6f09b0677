//! What is looked at once, when a store is opened: version, cluster, eviction.

use ::redis::{ServerErrorKind, Value};

use super::connection::Connections;
use super::fault;
use super::rights;
use crate::error::{Error, Result};

/// Refuses a server, or a cluster with one, on which locks would not be safe.
pub(super) async fn check(connections: &Connections) -> Result<()> {
    let shared = connections.here().await?;
    let mut policy = ::redis::cmd("CONFIG");
    policy.arg("GET").arg("maxmemory-policy");
    let is_cluster = connections.cluster().is_some();
    rights::judge(&connections.command(&shared, rights::question(is_cluster)).await?)?;
    for (server, info) in &connections.everywhere(&shared, ::redis::cmd("INFO")).await? {
        if is_forbidden(info) {
            tracing::warn!(server, "the Redis user may not run INFO, so dlock cannot see the server's version");
        } else {
            check_info(text(info).ok_or_else(|| fault::unexpected(info))?, is_cluster)?;
        }
    }
    for (server, policy) in &connections.everywhere(&shared, policy).await? {
        if is_forbidden(policy) {
            tracing::warn!(
                server,
                "the Redis user may not run CONFIG GET: make sure that maxmemory-policy is noeviction"
            );
            continue;
        }
        let policy = policy_of(policy).ok_or_else(|| fault::unexpected(policy))?;
        check_policy(policy, connections.target.settings.eviction_allowed)?;
    }
    Ok(())
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
    Err(Error::config(
        "maxmemory-policy",
        "Redis may evict locks when its memory is full: set maxmemory-policy to noeviction, or add eviction=allow to the URL",
    ))
}

fn is_forbidden(answer: &Value) -> bool {
    // Hosted servers rename what their customers may not use, and then it is unknown.
    matches!(answer, Value::ServerError(error)
        if matches!(error.kind(), Some(ServerErrorKind::NoPerm | ServerErrorKind::ResponseError)))
}

fn policy_of(answer: &Value) -> Option<&str> {
    match answer {
        Value::Map(pairs) => text(&pairs.first()?.1),
        Value::Array(pair) => text(pair.get(1)?),
        _ => None,
    }
}

/// One line of what `INFO` answers.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

pub(super) fn text(answer: &Value) -> Option<&str> {
    match answer {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

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
    fn eviction_is_refused_unless_it_was_allowed() {
        assert!(check_policy("noeviction", false).is_ok());
        for policy in ["allkeys-lru", "volatile-ttl"] {
            assert!(check_policy(policy, false).is_err());
            assert!(check_policy(policy, true).is_ok());
        }
    }
}
