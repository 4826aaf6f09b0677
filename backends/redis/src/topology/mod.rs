//! Which servers there are, and who leads to the one that grants.
//!
//! | plan | the server that grants | what follows a change |
//! | --- | --- | --- |
//! | one server ([`Plan::Server`]) | the one in the URL; refused if it is a replica | nothing: connections break and are opened anew |
//! | Sentinel ([`sentinel`]) | the primary that a majority of the sentinels names; `ROLE` is looked at on every connection | [`watch`]: news of the sentinels, and all connections are dropped |
//! | Cluster ([`cluster`]) | the primary of the lock's slot, found by the client | the client follows `MOVED` and `ASK`; where a server is [silent](`silence`), another client takes its place ([`shared`]) |
//!
//! Everything else of this backend knows connections, not servers.

pub(super) mod cluster;
mod hosts;
mod keys;
mod nodes;
mod sentinel;
mod shared;
mod silence;
pub(super) mod slots;
mod tls;
pub(super) mod watch;

use super::socket::Server;
pub(super) use nodes::ClusterPlan;
pub(super) use sentinel::{Address, Sentinels};
pub(super) use shared::{Opening, SharedClient};
pub(super) use tls::Tls;

/// Who leads to the server that grants.
pub(super) enum Plan {
    Server(Server),
    Sentinel(Sentinels),
    Cluster(ClusterPlan),
}
