//! Promises of pairs beyond the conformance suite, on a real Redis and a real MariaDB, each behind a proxy.

mod kit;
mod late;
mod migration;
mod operator;
mod refused;
mod table;
mod unsteady;
mod waiting;
