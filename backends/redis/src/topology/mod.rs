//! The servers of a store, and the way to the one that grants.
//!
//! | plan | the server that grants | what follows a change |
//! | --- | --- | --- |
//! | one server ([`Plan::Server`]) | the one in the URL; refused if it is a replica | nothing: connections break and are opened anew |
//! | Sentinel ([`sentinel`]) | the primary that a majority of the sentinels names; `ROLE` is looked at on every connection | [`watch`]: news of the sentinels, and all connections are dropped |
//! | Cluster ([`cluster`]) | the primary of the lock's slot, found by the client | the client follows `MOVED` and `ASK`; where a server is [silent](`silence`), another client takes its place ([`shared`]) |
//!
//! Everything else of this backend knows connections, not servers.

pub(crate) mod sentinel;
pub(crate) mod target;
