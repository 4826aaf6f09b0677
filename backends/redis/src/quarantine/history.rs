//! The identity of a server and the history of its data, as the server reports them.

use std::time::Duration;

use ::redis::Value;
use dlock_contract::BootInstant;

use crate::reply::read::{field, settings, text, uptime};

/// One run of one server.
pub(crate) struct Life {
    pub(crate) run_id: String,
    /// [`History::name`] then.
    pub(crate) history: String,
    /// When it was connected to last.
    pub(crate) met: BootInstant,
}

/// The server as the first answers on a connection describe it.
pub(crate) struct ServerDescription {
    pub(crate) run_id: String,
    pub(crate) uptime: Duration,
    /// Whether every acknowledged write is on the disk.
    pub(crate) durable: bool,
    pub(crate) history: History,
    /// Whether it may evict locks when its memory is full; `None` if the account may not ask.
    pub(crate) evicts: Option<bool>,
}

/// A server's answer about the history of its data.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Its name (`master_replid`): another one since each promotion.
    pub(crate) name: String,
    /// Whether it continues another history (`master_replid2`): after a promotion, and after a restart of a primary from
    /// its snapshot; not where a first replica came, or the last one went long ago.
    pub(crate) is_heir: bool,
    /// Whether the server is a primary.
    pub(crate) is_primary: bool,
}

/// The question that [`History`] is read from.
pub(crate) const REPLICATION: &[&str] = &["INFO", "replication"];

/// The questions to a server on a new connection. The last two are those about its eviction policy: hosted servers block
/// `CONFIG`, and an account may be without `INFO`.
pub(crate) const QUESTIONS: [&[&str]; 5] = [
    &["INFO", "server"],
    &["INFO", "persistence"],
    REPLICATION,
    &["INFO", "memory"],
    &["CONFIG", "GET", "appendfsync", "maxmemory-policy"],
];

impl ServerDescription {
    /// Reads the answers to [`QUESTIONS`]; nothing where the user may not ask for the first.
    pub(crate) fn read(answers: &[Value]) -> Option<Self> {
        let [server, persistence, replication, memory, config] = answers else { return None };
        let server = text(server)?;
        let appends = text(persistence).and_then(|info| field(info, "aof_enabled")) == Some("1");
        let settings = settings(config).unwrap_or_default();
        let always = settings.contains(&("appendfsync", "always"));
        Some(Self {
            run_id: field(server, "run_id")?.to_owned(),
            uptime: uptime(server)?,
            durable: appends && always,
            history: History::read(replication).unwrap_or_default(),
            evicts: may_evict(memory, config),
        })
    }

    /// When it started, at the latest: it counts whole seconds of its clock, so the first may have been a short one.
    pub(crate) fn started(&self, now: BootInstant) -> BootInstant {
        now.before(self.uptime.saturating_sub(Duration::from_secs(1)))
    }
}

impl History {
    /// Reads the answer to [`REPLICATION`].
    pub(crate) fn read(answer: &Value) -> Option<Self> {
        let info = text(answer)?;
        Some(Self {
            name: field(info, "master_replid")?.to_owned(),
            is_heir: field(info, "master_replid2").is_some_and(|name| name.contains(|digit| digit != '0')),
            is_primary: field(info, "role") == Some("master"),
        })
    }

    pub(crate) fn was_begun_since(&self, life: &Life) -> bool {
        self.is_heir && self.name != life.history
    }
}

/// Whether the server may evict keys, by its answers to the last two of [`QUESTIONS`].
pub(crate) fn may_evict(memory: &Value, config: &Value) -> Option<bool> {
    policy(memory, config).map(|policy| policy != "noeviction")
}

/// The eviction policy, by the answer to `INFO`, or else to `CONFIG GET`.
pub(crate) fn policy<'a>(info: &'a Value, config: &'a Value) -> Option<&'a str> {
    let set = || settings(config)?.into_iter().find_map(|(name, value)| (name == "maxmemory-policy").then_some(value));
    text(info).and_then(|info| field(info, "maxmemory_policy")).or_else(set)
}
