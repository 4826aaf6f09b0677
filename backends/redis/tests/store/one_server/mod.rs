//! The Redis backend against a real server.

mod broken;
mod carried;
mod carried_cut;
mod carried_runtimes;
mod cycle;
mod database;
mod ended;
mod ended_clients;
mod faults;
mod fenced;
mod hostile;
mod left;
mod let_in;
mod line;
mod missed;
mod server;
mod short_waits;
mod silent;
mod tokens;
mod told;
mod unpolled;
