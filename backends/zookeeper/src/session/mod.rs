//! The sessions of a store: one for each ttl, shared by its holds.

mod connect;
mod lease;
mod leases;

pub(crate) use lease::Lease;
pub(crate) use leases::Leases;
