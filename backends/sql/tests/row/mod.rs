//! Cases of row locks that are the same on every server. The tests of each dialect include this folder, beside a module
//! `row_kit` that knows how to reach its server, and the macro `row_lock_cases` that runs each case there.

mod body;
mod deadlock;
mod dropped;
mod ends;
mod late;
mod lost_releases;
mod records;
mod rights;
pub(crate) mod support;
mod sweep;
mod table;
mod timeouts;
mod undone;
pub(crate) mod world;
