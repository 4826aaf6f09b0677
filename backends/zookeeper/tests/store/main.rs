//! The ZooKeeper backend against real servers: what holds beyond the suite that all backends pass.

mod accounts;
mod attribute;
mod clock;
mod counter;
mod defaults;
mod ensemble;
mod fenced;
mod first_contact;
mod foreign;
mod forms;
mod health;
mod killed;
mod kit;
mod line;
mod outage;
mod peer;
mod releases;
mod sessions;
mod strangers;
mod tls;

#[test]
fn child_main() {
    killed::child();
}
