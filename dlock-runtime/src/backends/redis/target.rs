//! From a URL to a server, without ever repeating the URL.

use std::fmt;
use std::time::Duration;

use ::redis::io::tcp::TcpSettings;
use ::redis::{Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion};

use crate::error::{Error, Result};

/// Which server, and what may be told about it: host, port, database.
pub(in crate::backends) struct Target {
    pub(in crate::backends) client: Client,
    pub(in crate::backends) eviction_allowed: bool,
    place: String,
    db: i64,
}

impl Target {
    /// Reads `redis://[user:password@]host[:port][/db][?eviction=allow]` or `unix:///path[?db=…&user=…&pass=…]`.
    pub(in crate::backends) fn parse(text: &str) -> Result<Self> {
        let bad = |why: &'static str| Error::config("url", why);
        let url = ::redis::parse_redis_url(text).ok_or_else(|| {
            bad("the Redis URL cannot be read; in a user or password write @ : / % # ? as %40 %3A %2F %25 %23 %3F")
        })?;
        let unix = matches!(url.scheme(), "unix" | "redis+unix");
        if !unix && url.scheme() != "redis" {
            return Err(bad(
                "this build of dlock has no TLS for Redis: use redis:// over a trusted network or a tunnel",
            ));
        }
        // A password with an unescaped # or ? ends up there; half of it would pass for a host and a port.
        if url.fragment().is_some() {
            return Err(bad("a Redis URL has no part after #; in a password write %23"));
        }
        let mut eviction_allowed = false;
        for (name, value) in url.query_pairs() {
            match (&*name, &*value) {
                ("eviction", "allow") => eviction_allowed = true,
                ("db" | "user" | "pass", _) if unix => {}
                _ => return Err(bad("the Redis URL has a parameter that dlock does not know; known: eviction=allow")),
            }
        }
        if url.host().is_none() != unix {
            return Err(bad("the Redis URL names no host, or a host before a socket's path"));
        }
        // Its error repeats parts of the URL, so it goes no further.
        let info = url.into_connection_info().map_err(|_| {
            bad("the Redis URL cannot be used: after the host come a port and the number of a database")
        })?;
        let place = match info.addr() {
            ConnectionAddr::Tcp(host, port) => format!("{host}:{port}"),
            _ => "unix socket".into(),
        };
        let redis = info.redis_settings().clone();
        let db = redis.db();
        let redis = redis.set_protocol(ProtocolVersion::RESP3).set_lib_name("dlock", env!("CARGO_PKG_VERSION"));
        let info = info.set_redis_settings(redis).set_tcp_settings(tcp());
        let client = Client::open(info).map_err(|_| bad("the Redis URL cannot be used"))?;
        Ok(Self { client, eviction_allowed, place, db })
    }
}

/// Small requests leave at once, and a peer that has vanished is noticed.
fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(Duration::from_secs(10));
    settings
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
        let settings = target.client.get_connection_info().redis_settings();
        assert_eq!(settings.password(), Some("c4n4ry@:/%#?"));
        assert_eq!(settings.username(), Some("us@er"));
        assert_eq!(format!("{target:?}"), "::1:7000/3");
        assert!(target.eviction_allowed);
    }

    #[cfg(unix)]
    #[test]
    fn a_socket_is_a_server_too() {
        for url in ["unix:///run/redis.sock?db=2&pass=c4n4ry", "redis+unix:///run/redis.sock?db=2"] {
            assert_eq!(format!("{:?}", Target::parse(url).unwrap()), "unix socket/2");
        }
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_it() {
        for url in [
            "redis://",
            "redis://:c4n4ry#@host",
            "redis://user:12#c4n4ry@host",
            "redis://user:12?c4n4ry@host",
            "redis://user:12/c4n4ry@host",
            "redis://host/c4n4ry",
            "redis://host:c4n4ry",
            "redis://a,c4n4ry b/0",
            "rediss://:c4n4ry@host",
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
