//! The servers of a cluster, and the client that finds all of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::AsyncPushSender;
use ::redis::cluster::{ClusterClient, ClusterClientBuilder};
use ::redis::cluster_async::ClusterConnection;
use ::redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use dlock_contract::engine::{Names, background};
use dlock_contract::{Address, Clock, Error, Result, Secret};

use crate::cluster::client::Opening;
use crate::reply::fault;
use crate::socket::options::{OPEN_LIMIT, redis_settings, tcp, tcp_address};
use crate::socket::resolver::Resolver;
use crate::socket::tls::Tls;

const DEFAULT_PORT: u16 = 6379;

/// A server that takes longer is passed over when the client connects to all of them.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// A server that does not answer for this long counts as dead, and the way to its slots is found anew.
const SILENCE_LIMIT: Duration = Duration::from_millis(1500);

/// The servers that a URL names, of which one is enough to find all others.
pub(crate) struct ClusterPlan {
    nodes: Vec<ConnectionInfo>,
    shown: String,
    names: Arc<Names>,
    tls: Option<Tls>,
}

impl ClusterPlan {
    /// `host[:port],…`.
    pub(crate) fn new(address: &Address, tls: Option<Tls>, names: &Arc<Names>) -> Result<Self> {
        if !(address.path().is_empty() || address.path() == ["0"]) {
            return Err(address.wrong("a Redis Cluster has only the database 0; leave out what follows the hosts"));
        }
        let hosts: Vec<_> = address.hosts().iter().map(|host| host.or_port(DEFAULT_PORT)).collect();
        let account = redis_settings(address.user(), address.password().map(Secret::reveal), 0);
        let shown: Vec<_> = hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let node = |(host, port)| {
            let place = tcp_address(host, port, tls.is_some());
            let info = place.into_connection_info().map_err(|_| address.wrong("the client library refuses it"))?;
            Ok(info.set_redis_settings(account.clone()).set_tcp_settings(tcp()))
        };
        let nodes = hosts.into_iter().map(node).collect::<Result<_>>()?;
        let plan = Self { nodes, shown: shown.join(", "), names: names.clone(), tls };
        // Files that are no certificates are found now.
        plan.client(None::<fn(::redis::PushInfo) -> Result<(), ::redis::aio::SendError>>)?;
        Ok(plan)
    }

    fn client(&self, pushes: Option<impl AsyncPushSender>) -> Result<ClusterClient> {
        let mut builder = ClusterClientBuilder::new(self.nodes.clone())
            .use_protocol(ProtocolVersion::RESP3)
            .tcp_settings(tcp())
            .async_dns_resolver(Resolver(self.names.clone()))
            .connection_timeout(CONNECT_LIMIT)
            .response_timeout(SILENCE_LIMIT)
            // This limit would need a timer in the caller's runtime.
            .overall_response_timeout(None)
            .retries(0);
        if let Some(pushes) = pushes {
            builder = builder.push_sender(pushes);
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            builder = builder.certs(tls.files());
        }
        let _ = &self.tls;
        builder
            .build()
            .map_err(|_| Error::config("url", "the client library refuses the Redis URL, or its files for TLS"))
    }

    /// Opens the client; on our own thread, which has the timers that it needs.
    pub(crate) async fn open(&self, clock: &Clock, pushes: Option<impl AsyncPushSender>) -> Result<ClusterConnection> {
        background()?.run(self.opening(clock, pushes)?).await?
    }

    /// The future that opens the client, for dlock's own thread.
    pub(crate) fn opening(&self, clock: &Clock, pushes: Option<impl AsyncPushSender>) -> Result<Opening> {
        let (client, clock, plan) = (self.client(pushes)?, clock.clone(), format!("{self:?}"));
        Ok(Box::pin(async move {
            match clock.timeout_at(clock.now().after(OPEN_LIMIT), client.get_async_connection()).await {
                Some(opened) => opened.map_err(|error| fault::cluster(&error)),
                None => Err(Error::outage(format!("no server of the {plan} answered within {OPEN_LIMIT:?}"))),
            }
        }))
    }
}

impl fmt::Debug for ClusterPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster of {}", self.shown)
    }
}
