//! The ZooKeeper backend against real servers: what holds beyond the suite that all backends pass.

mod accounts;
mod counter;
mod ensemble;
mod fenced;
mod foreign;
mod health;
mod kit;
mod line;
mod outage;
mod peer;
mod sessions;
mod strangers;
mod tls;
