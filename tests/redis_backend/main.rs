//! The Redis backend against a real server.

#[path = "../holds/mod.rs"]
mod holds;

mod carried;
mod carried_cut;
mod carried_runtimes;
mod cycle;
mod database;
mod fenced;
mod line;
mod server;
mod tokens;
