//! The servers that a cluster's URL names, and the way to open a connection to any of its servers.

use std::fmt;
use std::sync::Arc;

use ::redis::{IntoConnectionInfo, RedisConnectionInfo};
use dlock_contract::{Error, Result};
use dlock_store::{Address, Names, Secret};

use crate::socket::options::{redis_settings, tcp, tcp_address};
use crate::socket::server::Server;
use crate::socket::tls::Tls;

const DEFAULT_PORT: u16 = 6379;

/// The host and the port of a server.
pub(crate) type At = (String, u16);

/// The servers that a URL names, of which one is enough to find all others.
pub(crate) struct ClusterPlan {
    hosts: Vec<At>,
    account: RedisConnectionInfo,
    names: Arc<Names>,
    tls: Option<Tls>,
}

impl ClusterPlan {
    /// `host[:port],…`.
    pub(crate) fn new(address: &Address, tls: Option<Tls>, names: &Arc<Names>) -> Result<Self> {
        if !(address.path().is_empty() || address.path() == ["0"]) {
            return Err(address.wrong("a Redis Cluster has only the database 0; leave out what follows the hosts"));
        }
        let hosts = address.hosts().iter().map(|host| host.or_port(DEFAULT_PORT)).collect();
        let account = redis_settings(address.user(), address.password().map(Secret::reveal), 0);
        Ok(Self { hosts, account, names: names.clone(), tls })
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = &At> {
        self.hosts.iter()
    }

    /// The server at this address, which one of the others has named.
    pub(crate) fn server(&self, (host, port): &At) -> Result<Server> {
        let address = tcp_address(host.clone(), *port, self.tls.is_some());
        let info = address.into_connection_info().map_err(|_| Error::config("url", "the Redis URL cannot be used"))?;
        let info = info.set_redis_settings(self.account.clone()).set_tcp_settings(tcp());
        Ok(Server::new(info, self.tls.clone(), &self.names))
    }
}

impl fmt::Debug for ClusterPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        write!(f, "cluster of {}", shown.join(", "))
    }
}
