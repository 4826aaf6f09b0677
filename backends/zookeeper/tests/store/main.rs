//! The ZooKeeper backend against real servers: what holds beyond the suite that all backends pass.

mod accounts;
mod curator;
mod ensemble;
mod fenced;
mod kazoo;
mod kit;
mod line;
mod outage;
mod peer;
mod sessions;
mod strangers;
mod tls;
