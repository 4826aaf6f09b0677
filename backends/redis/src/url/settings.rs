//! The parameters of a Redis URL.

use std::fmt;
use std::time::Duration;

use dlock_contract::{Error, Result};

/// The parameters of all topologies. Each topology refuses those that it does not have.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    /// `eviction=allow`: a server that may evict locks is accepted.
    pub(crate) eviction_allowed: bool,
    /// `keys=literal`, `layout=redisson`: locks in the form of other tools.
    pub(crate) layout: Layout,
    /// `wait_replicas=n`: a grant counts once this many replicas have it.
    pub(crate) wait_replicas: u32,
    /// `restart_guard=…`: no grants after a restart that may have lost locks.
    pub(crate) restart_guard: GuardTime,
    /// `failover_guard=…`: no grants after a failover that may have lost locks.
    pub(crate) failover_guard: GuardTime,
    /// `ca=…`, `cert=…`, `key=…`: files for TLS.
    pub(crate) ca: Option<String>,
    pub(crate) cert: Option<String>,
    pub(crate) key: Option<String>,
    /// `sentinel_user=…`, `sentinel_password=…`: the account at the sentinels.
    pub(crate) sentinel_user: Option<String>,
    pub(crate) sentinel_password: Option<String>,
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

/// The kind of the URL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Server,
    Socket,
    Sentinel,
    Cluster,
}

const UNKNOWN: &str = "the Redis URL has a parameter that dlock does not know, or that this topology cannot do; known: \
                       eviction=allow, keys=literal, layout=redisson, wait_replicas=n, restart_guard, failover_guard (a time, auto or off), \
                       ca, cert and key (files, with TLS), sentinel_user and sentinel_password (of redis-sentinel://)";

impl Settings {
    /// Takes one parameter in. Neither its name nor its value is repeated: half a password may have ended up here.
    pub(crate) fn set(&mut self, scheme: Scheme, tls: bool, name: &str, value: &str) -> Result<()> {
        let text = || Some(value.to_owned());
        match name {
            "eviction" if value == "allow" => self.eviction_allowed = true,
            "keys" if value == "literal" => {
                // Redisson's are literal too.
                if self.layout == Layout::Own {
                    self.layout = Layout::Literal;
                }
            }
            "layout" if value == "redisson" && scheme != Scheme::Cluster => self.layout = Layout::Redisson,
            "wait_replicas" => {
                let number = value.parse().ok().filter(|number| (1..=100).contains(number));
                self.wait_replicas = number.ok_or_else(|| {
                    Error::config("wait_replicas", "wait_replicas is a number of replicas, from 1 to 100")
                })?;
            }
            "restart_guard" => self.restart_guard = guard("restart_guard", value)?,
            "failover_guard" => self.failover_guard = guard("failover_guard", value)?,
            "ca" if tls => self.ca = text(),
            "cert" if tls => self.cert = text(),
            "key" if tls => self.key = text(),
            "sentinel_user" if scheme == Scheme::Sentinel => self.sentinel_user = text(),
            "sentinel_password" if scheme == Scheme::Sentinel => self.sentinel_password = text(),
            // The client reads these by itself.
            "db" | "user" | "pass" if scheme == Scheme::Socket => {}
            _ => return Err(Error::config("url", UNKNOWN)),
        }
        Ok(())
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

fn guard(name: &'static str, value: &str) -> Result<GuardTime> {
    match value {
        "auto" => Ok(GuardTime::Auto),
        "off" => Ok(GuardTime::Off),
        time => match humantime::parse_duration(time) {
            Ok(time) if time <= Duration::from_secs(86_400) => Ok(GuardTime::For(time)),
            _ => Err(Error::config(name, format!("{name} is a time of at most a day such as 30s, or auto, or off"))),
        },
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither files nor credentials.
        f.debug_struct("Settings")
            .field("eviction_allowed", &self.eviction_allowed)
            .field("layout", &self.layout)
            .field("wait_replicas", &self.wait_replicas)
            .field("restart_guard", &self.restart_guard)
            .field("failover_guard", &self.failover_guard)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(scheme: Scheme, tls: bool, name: &str, value: &str) -> Result<Settings> {
        let mut settings = Settings::default();
        settings.set(scheme, tls, name, value).map(|()| settings)
    }

    #[test]
    fn each_topology_refuses_what_means_nothing_to_it() {
        for (scheme, tls, name, value) in [
            (Scheme::Cluster, false, "db", "1"),
            (Scheme::Server, false, "ca", "/ca.pem"),
            (Scheme::Server, false, "sentinel_password", "x"),
            (Scheme::Cluster, false, "wait_replicas", "0"),
            (Scheme::Server, false, "eviction", "maybe"),
            (Scheme::Server, false, "db", "1"),
            (Scheme::Server, false, "keys", "plain"),
            (Scheme::Server, false, "layout", "literal"),
            (Scheme::Cluster, false, "layout", "redisson"),
        ] {
            assert!(set(scheme, tls, name, value).is_err(), "{name}");
        }
        assert_eq!(set(Scheme::Server, true, "ca", "/ca.pem").unwrap().ca.as_deref(), Some("/ca.pem"));
    }

    #[test]
    fn the_layout_is_ours_unless_asked_for() {
        let layout = |pairs: &[(&str, &str)]| {
            let mut settings = Settings::default();
            pairs.iter().for_each(|(name, value)| settings.set(Scheme::Server, false, name, value).unwrap());
            settings.layout
        };
        let (keys, redisson) = (("keys", "literal"), ("layout", "redisson"));
        assert_eq!(layout(&[("eviction", "allow")]), Layout::Own);
        assert_eq!(layout(&[keys]), Layout::Literal);
        for pairs in [&[redisson][..], &[keys, redisson], &[redisson, keys]] {
            assert_eq!(layout(pairs), Layout::Redisson);
        }
    }

    #[test]
    fn a_guard_is_a_time_auto_or_off() {
        let read =
            |value| set(Scheme::Sentinel, false, "failover_guard", value).map(|settings| settings.failover_guard);
        assert_eq!(read("30s").unwrap(), GuardTime::For(Duration::from_secs(30)));
        assert_eq!((read("off").unwrap(), read("auto").unwrap()), (GuardTime::Off, GuardTime::Auto));
        for bad in ["", "30", "2d", "yes"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
