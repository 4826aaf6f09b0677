//! The target of a URL. No error repeats any part of the URL.

use std::fmt;
use std::sync::Arc;

use ::redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion};
use dlock_contract::engine::Names;
use dlock_contract::{Error, Result};

use crate::cluster::plan::ClusterPlan;
use crate::socket::options::tcp;
use crate::socket::server::Server;
use crate::socket::tls::Tls;
use crate::topology::sentinel::Sentinels;
use crate::url::settings::{GuardTime, Scheme, Settings};

/// The way to the server that grants.
pub(crate) enum Plan {
    Server(Server),
    Sentinel(Sentinels),
    Cluster(ClusterPlan),
}

/// Which servers, and what may be told about them: host, port, database.
pub struct Target {
    pub(crate) plan: Plan,
    pub(crate) settings: Settings,
    place: String,
    db: i64,
}

impl Target {
    /// The account, and whether eviction is allowed; of a single server. For the tests of Redlock's addresses.
    pub fn account(&self) -> Option<(Option<&str>, Option<&str>, bool)> {
        let Plan::Server(server) = &self.plan else { return None };
        let settings = server.info().redis_settings();
        Some((settings.username(), settings.password(), self.settings.eviction_allowed))
    }

    /// Without guards, for one that judges its servers by itself.
    pub fn unguarded(mut self) -> Self {
        (self.settings.restart_guard, self.settings.failover_guard) = (GuardTime::Off, GuardTime::Off);
        self
    }

    /// Reads a URL of any topology.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_with(text, &Arc::default())
    }

    /// Reads a URL, with the store's look-up of host names.
    pub(crate) fn parse_with(text: &str, names: &Arc<Names>) -> Result<Self> {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        match &*scheme.to_ascii_lowercase() {
            "redis-sentinel" => Self::sentinel(rest, false, names),
            "rediss-sentinel" => Self::sentinel(rest, true, names),
            "redis-cluster" => Self::cluster(rest, false, names),
            "rediss-cluster" => Self::cluster(rest, true, names),
            _ => Self::server(text, names),
        }
    }

    /// `redis://[user:password@]host[:port][/db][?…]`, the same with `rediss`, or `unix:///path[?db=…&user=…&pass=…]`.
    fn server(text: &str, names: &Arc<Names>) -> Result<Self> {
        let bad = |why: &'static str| Error::config("url", why);
        let url = ::redis::parse_redis_url(text).ok_or_else(|| {
            bad("the Redis URL cannot be read; in a user or password write @ : / % # ? as %40 %3A %2F %25 %23 %3F")
        })?;
        let scheme = match url.scheme() {
            "unix" | "redis+unix" => Scheme::Socket,
            "redis" | "rediss" => Scheme::Server,
            _ => {
                return Err(bad(
                    "a Redis URL begins with redis://, rediss://, unix://, redis-sentinel:// or redis-cluster://",
                ));
            }
        };
        // A password with an unescaped # or ? ends up there; half of it would pass for a host and a port.
        if url.fragment().is_some() {
            return Err(bad("a Redis URL has no part after #; in a password write %23"));
        }
        let (mut settings, with_tls) = (Settings::default(), url.scheme() == "rediss");
        for (name, value) in url.query_pairs() {
            settings.set(scheme, with_tls, &name, &value)?;
        }
        if url.host().is_none() != (scheme == Scheme::Socket) {
            return Err(bad("the Redis URL names no host, or a host before a socket's path"));
        }
        let tls = if with_tls { Some(Tls::new(&settings)?) } else { None };
        // Its error repeats parts of the URL, so it goes no further.
        let info = url.into_connection_info().map_err(|_| {
            bad("the Redis URL cannot be used: after the host come a port and the number of a database")
        })?;
        let place = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => format!("{host}:{port}"),
            _ => "unix socket".into(),
        };
        let redis = info.redis_settings().clone();
        if redis.username().is_some() && redis.password().is_none() {
            return Err(bad("the Redis URL names a user without a password"));
        }
        let db = redis.db();
        let redis = redis.set_protocol(ProtocolVersion::RESP3).set_lib_name("dlock", env!("CARGO_PKG_VERSION"));
        let info = info.set_redis_settings(redis).set_tcp_settings(tcp());
        let plan = Plan::Server(Server::new(info, tls, names));
        Ok(Self { plan, settings, place, db })
    }

    fn sentinel(rest: &str, tls: bool, names: &Arc<Names>) -> Result<Self> {
        let (sentinels, settings) = Sentinels::new(rest, tls, names)?;
        Ok(Self { place: format!("{sentinels:?}"), db: sentinels.db(), plan: Plan::Sentinel(sentinels), settings })
    }

    fn cluster(rest: &str, tls: bool, names: &Arc<Names>) -> Result<Self> {
        let (cluster, settings) = ClusterPlan::new(rest, tls, names)?;
        Ok(Self { place: format!("{cluster:?}"), db: 0, plan: Plan::Cluster(cluster), settings })
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.place, self.db)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "c4n4ry";

    #[test]
    fn a_password_is_decoded_and_never_shown() {
        let target = Target::parse("redis://us%40er:c4n4ry%40%3A%2F%25%23%3F@[::1]:7000/3?eviction=allow").unwrap();
        let Plan::Server(server) = &target.plan else { panic!() };
        let settings = server.info().redis_settings();
        assert_eq!(settings.password(), Some("c4n4ry@:/%#?"));
        assert_eq!(settings.username(), Some("us@er"));
        assert_eq!(format!("{target:?}"), "::1:7000/3");
        assert!(target.settings.eviction_allowed);
    }

    #[cfg(unix)]
    #[test]
    fn a_socket_is_a_server_too() {
        for url in ["unix:///run/redis.sock?db=2&pass=c4n4ry", "redis+unix:///run/redis.sock?db=2"] {
            assert_eq!(format!("{:?}", Target::parse(url).unwrap()), "unix socket/2");
        }
    }

    #[test]
    fn several_hosts_are_told_by_their_number() {
        let shown = |url| format!("{:?}", Target::parse(url).unwrap());
        assert_eq!(shown("redis-sentinel://:c4n4ry@a,b:1,c/main/2?sentinel_password=c4n4ry"), "main by 3 sentinels/2");
        assert_eq!(shown("redis-cluster://u:c4n4ry@a:1,b:2"), "cluster of a:1, b:2/0");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_is_a_letter_in_the_scheme() {
        for url in ["rediss://:c4n4ry@host/1", "rediss-sentinel://a,b/main", "rediss-cluster://a"] {
            Target::parse(url).unwrap();
        }
        let error = Target::parse("rediss://host?ca=/c4n4ry/none.pem").unwrap_err();
        assert!(!format!("{error:?}").contains(CANARY));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_it() {
        for url in [
            "redis://",
            "redis://c4n4ry@host",
            "redis://:c4n4ry#@host",
            "redis://user:12#c4n4ry@host",
            "redis://user:12?c4n4ry@host",
            "redis://user:12/c4n4ry@host",
            "redis://host/c4n4ry",
            "redis://host:c4n4ry",
            "redis://a,c4n4ry b/0",
            "rediss://:c4n4ry@host?ca=/nowhere/c4n4ry",
            "redis-sentinel://:c4n4ry@host",
            "redis-sentinel://host/name/c4n4ry",
            "redis-sentinel://host/a/0/c4n4ry",
            "redis-cluster://host/c4n4ry",
            "redis-cluster://host?wait_replicas=c4n4ry",
            "redis-other://c4n4ry",
            "redis://host?c4n4ry=1",
            "redis://host?eviction=c4n4ry",
            "unix://c4n4ry/path",
            "c4n4ry",
        ] {
            let error = Target::parse(url).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(CANARY), "{shown}");
            assert!(std::error::Error::source(&error).is_none());
            assert_eq!(error.kind().as_str(), "config_invalid");
        }
    }
}
