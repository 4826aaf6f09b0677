//! The Consul backend against a real Consul: what holds beyond the suite that all backends pass.

mod clock;
mod cluster;
mod faults;
mod fenced;
mod first_contact;
mod forms;
mod literal;
mod nodes;
mod permits;
mod rights;
mod scripted;
mod server;
mod sessions;
mod three;
mod tls;
mod tools;
mod turns;

#[test]
fn child_main() {
    tls::child();
}
