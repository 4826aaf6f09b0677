//! Checks the servers when a store is opened and for a readiness probe: rights, version, cluster, role, eviction,
//! persistence. Both use one function: otherwise `ready` could refuse a server that grants locks.

use std::sync::Arc;

use ::redis::{Cmd, Value};
use dlock_contract::{Durability, Health, Result};
use dlock_store::Seldom;

use crate::connections::pool::Connections;
use crate::connections::rights;
use crate::layout::slots::{Slot, number_of};
use crate::quarantine::history::policy;
use crate::reply::fault;
use crate::reply::fault::evicts;
use crate::reply::read::{field, is_forbidden, settings, text};
use crate::scripts::call::words;
use crate::topology::target::Plan;
use crate::url::settings::GuardTime;

/// Refuses a server, or a cluster with one, on which locks would not be safe. A server of a cluster that does not answer is
/// a finding, if another one does. It is asked before its first grant.
///
/// # Errors
/// No answer, a replica, an old server, one that may evict locks, missing rights.
pub(crate) async fn check(connections: &Arc<Connections>) -> Result<Health> {
    let shared = connections.here().await?;
    let asked = connections.everywhere(&shared, questions(connections)).await;
    // A server that does not answer may be without the command of the others.
    let infos =
        asked.iter().map(|(_, answers)| answers.as_ref().ok().and_then(|all| all.get(1)).unwrap_or(&Value::Nil));
    connections.compare_and_delete.look_at(infos);
    let mut health = Health::new();
    if let Plan::Sentinel(sentinels) = &connections.target.plan {
        health.findings = sentinels.compare(&connections.clock).await?;
    }
    let (mut failure, mut answered) = (None, false);
    for (server, answers) in asked {
        let silent = format!("{server}: the server does not answer, so it grants no lock");
        // The servers of a cluster mostly have the same accounts, so one warning is enough.
        match answers.and_then(|answers| judge(health.clone(), connections, &server, &answers, !answered)) {
            Ok(judged) => {
                (health, answered) = (judged, true);
                connections.asked.note(server);
            }
            Err(error) if error.is_retryable() => {
                health.findings.push(silent);
                failure = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match failure {
        Some(error) if !answered => return Err(error),
        Some(_) => {}
        None => connections.asked.note_all(),
    }
    Ok(health)
}

/// Asks the server of this slot what the opening asks, if it has not answered yet.
///
/// # Errors
/// Like [`check`].
pub(crate) async fn check_later(connections: &Arc<Connections>, slot: Slot) -> Result<()> {
    let Some(servers) = connections.cluster() else { return Ok(()) };
    let server = servers.of(Some(slot))?.shown();
    if connections.asked.has(&server) {
        return Ok(());
    }
    let shared = connections.here().await?;
    let answers = connections.at_slot(&shared, number_of(slot), questions(connections)).await?;
    judge(Health::new(), connections, &server, &answers, true)?;
    connections.asked.note(server);
    Ok(())
}

/// The questions to one server: rights, version and role, settings. Hosted servers block `CONFIG`, and an account may be
/// without `INFO`. Each of them reports the settings.
fn questions(connections: &Connections) -> Vec<Cmd> {
    let waits_for_replicas = connections.target.settings.wait_replicas > 0;
    let rights = rights::question(connections.cluster().is_some(), waits_for_replicas);
    vec![rights, ::redis::cmd("INFO"), words(&["CONFIG", "GET", "maxmemory-policy", "*append*"])]
}

/// The health with the answers of one server, which may be refused.
fn judge(health: Health, connections: &Connections, server: &str, answers: &[Value], warns: bool) -> Result<Health> {
    let [rights, info, config] = answers else { return Err(fault::unexpected(&Value::Nil)) };
    // Only the servers of a cluster report their addresses.
    let host = if server.is_empty() { format!("{:?}", connections.target) } else { server.to_owned() };
    rights::judge(rights, warns.then_some(&*host))?;
    with(health, connections, server, info, config)
}

/// Checks a store that is opened, and logs what makes its promises smaller.
pub async fn check_and_warn(connections: &Arc<Connections>) -> Result<()> {
    let findings = connections.bounded(check(connections)).await??.findings.join("; ");
    if !findings.is_empty() {
        // Redlock opens each node often.
        static TOLD: Seldom = Seldom::new();
        let host = format!("{:?}", connections.target);
        TOLD.line(format!("{host} {findings}"), move || tracing::warn!(host, "{findings}"));
    }
    Ok(())
}

/// The health with the report of one server, which may be refused.
fn with(mut health: Health, connections: &Connections, server: &str, info: &Value, config: &Value) -> Result<Health> {
    let url_settings = &connections.target.settings;
    let mut findings = Vec::new();
    if is_forbidden(info) {
        findings.push("the Redis user may not run INFO, so the server's version is unknown".to_owned());
    } else {
        let info = text(info).ok_or_else(|| fault::unexpected(info))?;
        check_info(info, connections.cluster().is_some())?;
        let version = field(info, "redis_version").unwrap_or("of an unknown version");
        health = health.version(format!("Redis {version}")).role("primary");
    }
    match policy(info, config) {
        None => findings.push(
            "the Redis user may run neither INFO nor CONFIG GET: make sure that maxmemory-policy is noeviction".into(),
        ),
        Some(policy) => {
            health = health.setting("maxmemory-policy", policy);
            check_policy(policy, url_settings.eviction_allowed)?;
            if policy != "noeviction" {
                findings.push(format!("maxmemory-policy is {policy}, so Redis may evict locks that are still held"));
            }
        }
    }
    let appends = appends(info, config);
    if let Some(appends) = appends {
        health = health.setting("appendonly", if appends { "yes" } else { "no" });
    }
    if let (Some(true), Some("yes")) = (appends, setting(config, "no-appendfsync-on-rewrite")) {
        health = health.setting("no-appendfsync-on-rewrite", "yes: a power failure forgets the last writes");
    }
    if let (Some(true), Some(syncs)) = (appends, setting(config, "appendfsync")) {
        let syncs_later = if syncs == "always" { "" } else { ": a power failure forgets the last writes" };
        health = health.setting("appendfsync", &format!("{syncs}{syncs_later}"));
    }
    // In a cluster another server may not have it.
    if appends == Some(true) && server.is_empty() {
        health.durability = Some(Durability::Node);
    }
    if appends == Some(false) {
        let then = match url_settings.restart_guard {
            GuardTime::Off => "another owner may then get a lock that is still held",
            _ => "a process that knew the server then gets no lock until those locks have ended (restart_guard)",
        };
        findings.push(format!(
            "Redis keeps no append-only file, so a restart forgets locks: {then}. With appendonly yes they are kept, \
             with appendfsync always also when the power fails"
        ));
    }
    // Only the servers of a cluster report their addresses.
    let of = if server.is_empty() { String::new() } else { format!("{server}: ") };
    health.findings.extend(findings.into_iter().map(|finding| format!("{of}{finding}")));
    Ok(health)
}

/// Whether the server keeps an append-only file; `None` if the account may not ask.
fn appends(info: &Value, config: &Value) -> Option<bool> {
    let told = || setting(config, "appendonly").map(|value| value == "yes");
    text(info).and_then(|info| field(info, "aof_enabled")).map(|enabled| enabled == "1").or_else(told)
}

/// One of the settings, if the account may ask for them.
fn setting<'a>(config: &'a Value, wanted: &str) -> Option<&'a str> {
    settings(config)?.into_iter().find_map(|(name, value)| (name == wanted).then_some(value))
}

fn check_info(info: &str, cluster: bool) -> Result<()> {
    let field = |name: &str| field(info, name);
    let major = field("redis_version").and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    if major.is_none_or(|major| major < 7) {
        return Err(fault::too_old());
    }
    if field("role").is_some_and(|role| role != "master") {
        return Err(fault::replica());
    }
    match (field("cluster_enabled") == Some("1"), cluster) {
        (true, false) => Err(fault::no_cluster()),
        (false, true) => Err(fault::no_part_of_a_cluster()),
        _ => Ok(()),
    }
}

fn check_policy(policy: &str, allowed: bool) -> Result<()> {
    if allowed || policy == "noeviction" { Ok(()) } else { Err(evicts()) }
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
