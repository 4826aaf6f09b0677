//! The servers of a store, and the way to the one that grants.
//!
//! | plan | the server that grants | what follows a change |
//! | --- | --- | --- |
//! | one server (`Plan::Server`) | the one in the URL; refused if it is a replica | nothing: connections break and are opened again |
//! | Sentinel ([`sentinel`]) | the primary that a majority of the sentinels names; `ROLE` is looked at on every connection | `connections::watch` hears it from the sentinels and drops all connections |
//! | Cluster (`cluster`) | the primary of the lock's slot, by the list of any server (`cluster::servers`) | `MOVED` and `ASK` are followed (`cluster::way`); if a server cannot be reached, the others are asked for the list |
//!
//! The folders above know connections, not servers.

pub(crate) mod sentinel;
pub(crate) mod target;
