//! The sessions of a store: one for each ttl, shared by its holds.

mod connect;
mod deletes;
mod lease;
mod leases;

pub(crate) use deletes::Deleted;
pub(crate) use lease::Lease;
pub(crate) use leases::Leases;
