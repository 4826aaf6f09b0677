//! The target of an address. No error repeats any part of the URL.

use std::fmt;
use std::sync::Arc;

use ::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use dlock_contract::Result;
use dlock_store::{Address, Host, Names, Secret};

use crate::cluster::plan::ClusterPlan;
use crate::socket::options::{redis_settings, tcp, tcp_address};
use crate::socket::server::Server;
use crate::socket::tls::Tls;
use crate::topology::sentinel::Sentinels;
use crate::url::form::{FORM, is_tls};
use crate::url::settings::{GuardTime, Settings};

const DEFAULT_PORT: u16 = 6379;

/// The way to the server that grants.
pub(crate) enum Plan {
    Server(Server),
    Sentinel(Sentinels),
    Cluster(Arc<ClusterPlan>),
}

/// The servers, and the parts that errors may show: host, port, database.
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

    pub(crate) fn db(&self) -> i64 {
        self.db
    }

    /// Without guards, for one that judges its servers by itself.
    pub fn unguarded(mut self) -> Self {
        (self.settings.restart_guard, self.settings.failover_guard) = (GuardTime::Off, GuardTime::Off);
        self
    }

    /// Reads a URL of any topology.
    pub fn parse(text: &str) -> Result<Self> {
        Self::of(&Address::parse(text, &FORM)?, &Arc::default())
    }

    /// The target of an address, with the store's look-up of host names.
    pub(crate) fn of(address: &Address, names: &Arc<Names>) -> Result<Self> {
        check_account(address, address.user(), address.password().map(Secret::reveal))?;
        let settings = Settings::of(address)?;
        let tls = if is_tls(address) { Some(Tls::new(address)?) } else { None };
        match (address.scheme(), address.hosts()) {
            ("redis" | "rediss", [host]) => Self::server(address, host, settings, tls, names),
            ("redis" | "rediss", [_, _, ..]) => Err(address.wrong(
                "redis:// takes one host; for several, write redis-sentinel://, redis-cluster:// or redlock://",
            )),
            ("unix" | "redis+unix", []) => Self::socket(address, settings, names),
            ("unix" | "redis+unix", _) => Err(address.wrong("the URL of a Unix socket has no host")),
            (_, []) => Err(address.wrong("it names no host")),
            ("redis-sentinel" | "rediss-sentinel", _) => {
                let sentinels = Sentinels::new(address, tls, names)?;
                Ok(Self {
                    place: format!("{sentinels:?}"),
                    db: sentinels.db(),
                    plan: Plan::Sentinel(sentinels),
                    settings,
                })
            }
            _ => {
                let cluster = ClusterPlan::new(address, tls, names)?;
                Ok(Self { place: format!("{cluster:?}"), db: 0, plan: Plan::Cluster(Arc::new(cluster)), settings })
            }
        }
    }

    /// One of several independent servers with one account, for Redlock.
    pub fn node(address: &Address, host: &Host) -> Result<Self> {
        check_account(address, address.user(), address.password().map(Secret::reveal))?;
        let settings = Settings { eviction_allowed: address.option("eviction").is_some(), ..Settings::default() };
        Self::server(address, host, settings, None, &Arc::default())
    }

    fn server(
        address: &Address,
        host: &Host,
        settings: Settings,
        tls: Option<Tls>,
        names: &Arc<Names>,
    ) -> Result<Self> {
        let db = match address.path() {
            [] => Some(0),
            [db] => db.parse().ok(),
            _ => None,
        };
        let db = db.ok_or_else(|| address.wrong("only a port and the number of a database may follow the host"))?;
        let (host, port) = host.or_port(DEFAULT_PORT);
        if ["0.0.0.0", "::"].contains(&&*host) {
            return Err(address.wrong("0.0.0.0 and [::] name no server; write the server's address"));
        }
        let place = format!("{host}:{port}");
        let account = redis_settings(address.user(), address.password().map(Secret::reveal), db);
        let info = info(address, tcp_address(host, port, tls.is_some()), account)?;
        Ok(Self { plan: Plan::Server(Server::new(info, tls, names)), settings, place, db })
    }

    fn socket(address: &Address, settings: Settings, names: &Arc<Names>) -> Result<Self> {
        if address.path().is_empty() || address.password().is_some() {
            return Err(
                address.wrong("the URL of a Unix socket is a path; write the account behind it: ?user=…&pass=…")
            );
        }
        let path = format!("/{}", address.path().join("/"));
        // The `?` was forgotten. The path is shown in errors, and it may contain a password.
        if path.contains('=') {
            return Err(address.wrong("options come after a `?`"));
        }
        let db = address.read("db", |db| db.parse().ok())?.unwrap_or_default();
        let (user, password) = (address.option("user"), address.option("pass"));
        check_account(address, user, password)?;
        let account = redis_settings(user, password, db);
        let info = info(address, ConnectionAddr::Unix(path.clone().into()), account)?;
        Ok(Self { plan: Plan::Server(Server::new(info, None, names)), settings, place: path, db })
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.place, self.db)
    }
}

/// Without a password the client would not log in, and go on as the default account.
fn check_account(address: &Address, user: Option<&str>, password: Option<&str>) -> Result<()> {
    match (user, password) {
        (Some(_), None) => Err(address.wrong("it has a user without a password")),
        _ => Ok(()),
    }
}

fn info(address: &Address, place: ConnectionAddr, account: RedisConnectionInfo) -> Result<ConnectionInfo> {
    let info = place.into_connection_info().map_err(|_| address.wrong("the client library refuses it"))?;
    Ok(info.set_redis_settings(account).set_tcp_settings(tcp()))
}

#[cfg(test)]
mod tests {
    use dlock_testkit::slips::assert_hidden;

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
    fn a_unix_socket_url_names_a_server() {
        for url in ["unix:///run/redis.sock?db=2&pass=c4n4ry", "redis+unix:///run/redis.sock?db=2"] {
            assert_eq!(format!("{:?}", Target::parse(url).unwrap()), "/run/redis.sock/2");
        }
    }

    #[test]
    fn several_hosts_are_shown() {
        let shown = |url| format!("{:?}", Target::parse(url).unwrap());
        assert_eq!(
            shown("redis-sentinel://:c4n4ry@a,b:1,c/main/2?sentinel_password=c4n4ry"),
            "main by a:26379, b:1, c:26379/2"
        );
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
    fn an_error_about_a_url_does_not_repeat_it() {
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
            "unix:///run/redis.sock/pass=c4n4ry",
            "redis-sentinel://:c4n4ry@host",
            "redis-sentinel://host/name/c4n4ry",
            "redis-sentinel://host/a/0/c4n4ry",
            "redis-cluster://host/c4n4ry",
            "redis-cluster://host?wait_replicas=c4n4ry",
            "redis-other://c4n4ry",
            "redis://host?c4n4ry",
            "redis://host?eviction=c4n4ry",
            "unix://c4n4ry/path",
            "unix://user:c4n4ry@/path",
            "unix://?pass=c4n4ry",
            "unix:///path?user=c4n4ry",
            "redis://user:c4n4ry@0.0.0.0",
            "redis://user:c4n4ry@a,b",
            "c4n4ry",
        ] {
            let error = Target::parse(url).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(CANARY), "{shown}");
            assert!(std::error::Error::source(&error).is_none());
            assert_eq!(error.kind().as_str(), "config_invalid");
        }
    }

    #[test]
    fn no_slip_in_a_url_shows_its_password() {
        let urls = [
            "redis://user:{}@127.0.0.1:1/0?eviction=allow",
            "rediss://:{}@h?ca=/nowhere/{}",
            "unix:///run/redis.sock?user=u&pass={}",
            "redis-sentinel://u:{}@a,b:1/main?sentinel_password={}",
            "redis-cluster://:{}@a:1,[::1]:2",
        ];
        assert_hidden(&urls, Target::parse);
    }
}
