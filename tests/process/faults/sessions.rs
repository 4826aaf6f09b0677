//! An operator ends all sessions of clients with the store.

use dlock_testkit::servers::Instance;
use serde_json::Value;

use crate::arena::Arena;
use crate::store::Store;

/// A store without such an order keeps its sessions. An order that fails has ended none.
pub(super) fn end(arena: &Arena) {
    // The authority of a pair is the last one.
    let Some(server) = arena.servers.last() else { return };
    match arena.store {
        Store::Redis | Store::Redlock => {
            arena.servers.iter().for_each(|server| drop(server.ask("CLIENT KILL TYPE normal")));
        }
        Store::Postgres | Store::PostgresNamed | Store::PostgresRow => {
            let text = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid()";
            drop(server.ask(text));
        }
        Store::MySql
        | Store::MySqlNamed
        | Store::MySqlRow
        | Store::MariaDb
        | Store::MariaDbNamed
        | Store::MariaDbRow
        | Store::Paired => {
            let list = "SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE db IS NOT NULL";
            let sessions = server.ask(list).unwrap_or_default();
            for session in sessions.split(|letter: char| !letter.is_ascii_digit()).filter(|id| !id.is_empty()) {
                drop(server.ask(&format!("KILL {session}")));
            }
        }
        Store::Etcd => end_leases(server),
        Store::Consul => end_sessions(server),
        Store::Memory | Store::Sqlite | Store::ZooKeeper => {}
    }
}

fn end_leases(server: &Instance) {
    let leases = server.ask("/v3/lease/leases {}").unwrap_or_default();
    let leases: Value = serde_json::from_str(&leases).unwrap_or_default();
    for lease in leases["leases"].as_array().into_iter().flatten() {
        drop(server.ask(&format!("/v3/lease/revoke {{\"ID\":{}}}", lease["ID"])));
    }
}

fn end_sessions(server: &Instance) {
    let sessions = server.ask("GET /v1/session/list").unwrap_or_default();
    let sessions: Value = serde_json::from_str(&sessions).unwrap_or_default();
    for id in sessions.as_array().into_iter().flatten().filter_map(|session| session["ID"].as_str()) {
        drop(server.ask(&format!("PUT /v1/session/destroy/{id}")));
    }
}
