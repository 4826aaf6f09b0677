//! Asks the servers whether they can take locks. `INFO` alone tells role, version, eviction and persistence.

use std::sync::Arc;

use dlock_contract::{Health, Result};

use crate::connections::check::{check_info, check_policy};
use crate::connections::pool::Connections;
use crate::connections::rights;
use crate::reply::fault;
use crate::reply::read::{field, is_forbidden, text};

/// The servers' own reports.
///
/// # Errors
/// As opening the store: no answer, a replica, an old server, one that may evict locks, missing rights.
pub(crate) async fn ready(connections: &Arc<Connections>) -> Result<Health> {
    let shared = connections.here().await?;
    let is_cluster = connections.cluster().is_some();
    rights::judge(&connections.command(&shared, rights::question(is_cluster)).await?)?;
    let mut health = Health::new();
    for (server, info) in &connections.everywhere(&shared, ::redis::cmd("INFO")).await? {
        // Only a cluster's servers tell their addresses.
        let of = if server.is_empty() { String::new() } else { format!("{server}: ") };
        if is_forbidden(info) {
            health = health.finding(format!("{of}the user may not run INFO, so version and settings are unknown"));
            continue;
        }
        let info = text(info).ok_or_else(|| fault::unexpected(info))?;
        check_info(info, is_cluster)?;
        if field(info, "role").is_some_and(|role| role != "master") {
            return Err(fault::replica());
        }
        // Absent in some forks; then opening the store has asked for it.
        if let Some(policy) = field(info, "maxmemory_policy") {
            check_policy(policy, connections.target.settings.eviction_allowed)?;
            if policy != "noeviction" {
                health = health.finding(format!("{of}maxmemory-policy is {policy}, so locks may be evicted"));
            }
        }
        if field(info, "aof_enabled") == Some("0") {
            health = health.finding(format!("{of}a restart forgets locks: set appendonly yes"));
        }
        let version = field(info, "redis_version").unwrap_or("of an unknown version");
        health = health.version(format!("Redis {version}")).role("primary");
    }
    Ok(health)
}
