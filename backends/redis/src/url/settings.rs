//! The settings of a store, as the options of its URL give them.

use std::time::Duration;

use dlock_contract::{Error, Result};
use dlock_store::Address;

/// The settings of all topologies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `eviction=allow`: a server that may evict locks is accepted.
    pub(crate) eviction_allowed: bool,
    /// `keys=literal`, `layout=redisson`: locks in the form of foreign clients.
    pub(crate) layout: Layout,
    /// `wait_replicas=n`: a grant counts once this many replicas have it.
    pub(crate) wait_replicas: u32,
    /// `restart_guard=…`: no grants after a restart that may have lost locks.
    pub(crate) restart_guard: GuardTime,
    /// `failover_guard=…`: no grants after a failover that may have lost locks.
    pub(crate) failover_guard: GuardTime,
}

/// The length of a quarantine: no grants after the server may have lost locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GuardTime {
    /// For the longest ttl that this process has asked for. Older locks of the same program have ended by then.
    #[default]
    Auto,
    /// No quarantine.
    Off,
    /// For this time, also in a process that sees the server for the first time.
    For(Duration),
}

/// The form of the locks in the server, and so the backend for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Names and values of our own: [`Redis`](crate::Redis).
    #[default]
    Own,
    /// Our values under plain names: [`Literal`](crate::Literal).
    Literal,
    /// Redisson's hashes under plain names: [`Redisson`](crate::Redisson).
    Redisson,
}

impl Settings {
    pub(crate) fn of(address: &Address) -> Result<Self> {
        let layout = match (address.option("layout"), address.option("keys")) {
            // Redisson's are literal too.
            (Some(_), _) => Layout::Redisson,
            (None, Some(_)) => Layout::Literal,
            (None, None) => Layout::Own,
        };
        let replicas = |value: &str| value.parse().ok().filter(|number| (1..=100).contains(number));
        Ok(Self {
            eviction_allowed: address.option("eviction").is_some(),
            layout,
            wait_replicas: address.read("wait_replicas", replicas)?.unwrap_or_default(),
            restart_guard: address.read("restart_guard", guard)?.unwrap_or_default(),
            failover_guard: address.read("failover_guard", guard)?.unwrap_or_default(),
        })
    }

    /// # Errors
    /// If the URL asks for another backend.
    pub(crate) fn check_layout(&self, wanted: Layout) -> Result<()> {
        if self.layout == wanted {
            return Ok(());
        }
        Err(Error::config(
            "url",
            "each layout has its backend: Redis, Literal for keys=literal, Redisson for layout=redisson; \
             dlock::connect and the registry take the right one",
        ))
    }
}

fn guard(value: &str) -> Option<GuardTime> {
    match value {
        "auto" => Some(GuardTime::Auto),
        "off" => Some(GuardTime::Off),
        time => {
            let time = humantime::parse_duration(time).ok()?;
            (time <= Duration::from_secs(86_400)).then_some(GuardTime::For(time))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::form::FORM;

    fn read(url: &str) -> Result<Settings> {
        Settings::of(&Address::parse(url, &FORM)?)
    }

    #[test]
    fn each_topology_refuses_what_means_nothing_to_it() {
        for url in [
            "redis-cluster://h?db=1",
            "redis://h?ca=/ca.pem",
            "redis://h?sentinel_password=x",
            "redis-cluster://h?wait_replicas=0",
            "redis://h?wait_replicas=101",
            "redis://h?eviction=maybe",
            "redis://h?db=1",
            "redis://h?keys=plain",
            "redis://h?layout=literal",
            "redis-cluster://h?layout=redisson",
        ] {
            assert!(read(url).is_err(), "{url}");
        }
        assert_eq!(Address::parse("rediss://h?ca=/ca.pem", &FORM).unwrap().option("ca"), Some("/ca.pem"));
    }

    #[test]
    fn the_layout_is_ours_unless_asked_for() {
        let layout = |query: &str| read(&format!("redis://h?{query}")).unwrap().layout;
        assert_eq!(layout("eviction=allow"), Layout::Own);
        assert_eq!(layout("keys=literal"), Layout::Literal);
        for query in ["layout=redisson", "keys=literal&layout=redisson", "layout=redisson&keys=literal"] {
            assert_eq!(layout(query), Layout::Redisson);
        }
    }

    #[test]
    fn a_guard_is_a_time_auto_or_off() {
        let read =
            |value| read(&format!("redis-sentinel://h/n?failover_guard={value}")).map(|read| read.failover_guard);
        assert_eq!(read("30s").unwrap(), GuardTime::For(Duration::from_secs(30)));
        assert_eq!((read("off").unwrap(), read("auto").unwrap()), (GuardTime::Off, GuardTime::Auto));
        for bad in ["", "30", "2d", "yes"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
