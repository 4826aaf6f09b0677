//! Checks a server once, when a store is opened: rights, version, cluster, eviction, persistence.

use std::sync::Arc;

use dlock_contract::engine::line;
use dlock_contract::{Error, Result};

use crate::connections::pool::Connections;
use crate::connections::rights;
use crate::reply::fault;
use crate::reply::fault::evicts;
use crate::reply::read::{field, is_forbidden, settings, text};
use crate::url::settings::GuardTime;

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
    connections.compare_and_delete.look_at(infos.iter().map(|(_, info)| info));
    for (server, info) in &infos {
        if is_forbidden(info) {
            let server = server.clone();
            line(move || {
                tracing::warn!(server, "the Redis user may not run INFO, so dlock cannot see the server's version");
            });
        } else {
            check_info(text(info).ok_or_else(|| fault::unexpected(info))?, is_cluster)?;
        }
    }
    let mut forgetful = Vec::new();
    for (server, answer) in &connections.everywhere(&shared, asked).await? {
        if is_forbidden(answer) {
            let server = server.clone();
            line(move || {
                tracing::warn!(
                    server,
                    "the Redis user may not run CONFIG GET: make sure that maxmemory-policy is noeviction"
                );
            });
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
    pub(crate) fn tell(&self, connections: &Connections) {
        let Self(servers) = self;
        if servers.is_empty() {
            return;
        }
        let then = if connections.target.settings.restart_guard != GuardTime::Off {
            "a process that knew the server then gets no lock until those locks have ended (restart_guard)"
        } else {
            "another owner may then get a lock that is still held"
        };
        let servers = servers.join(", ");
        line(move || {
            tracing::warn!(
                servers,
                "Redis keeps no append-only file, so a restart forgets locks: {then}. With appendonly yes they are kept, \
                 with appendfsync always also when the power fails"
            );
        });
    }
}

pub(crate) fn check_info(info: &str, cluster: bool) -> Result<()> {
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

pub(crate) fn check_policy(policy: &str, allowed: bool) -> Result<()> {
    if policy == "noeviction" {
        return Ok(());
    }
    if allowed {
        let policy = policy.to_owned();
        line(move || {
            tracing::warn!(policy, "Redis may evict locks when its memory is full, and two callers then hold one lock");
        });
        return Ok(());
    }
    Err(evicts())
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
    fn eviction_is_refused_unless_it_was_allowed() {
        assert!(check_policy("noeviction", false).is_ok());
        for policy in ["allkeys-lru", "volatile-ttl"] {
            assert!(check_policy(policy, false).is_err());
            assert!(check_policy(policy, true).is_ok());
        }
    }
}
