//! The Redis backend against real servers: what holds beyond the suite that all stores pass.

mod foreign;
mod modes;
mod names;
mod one_server;
mod rights;
mod topologies;
