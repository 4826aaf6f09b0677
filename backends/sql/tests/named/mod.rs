//! Cases of named locks that are the same on every server. The tests of each dialect include this folder, beside a module
//! `named_kit` that knows how to reach its server, and the macro `named_cases` that runs each case there.

mod cycle;
mod dropped;
mod exchange;
pub(crate) mod half_broken;
mod inspect;
mod late;
mod lost_releases;
mod releases;
mod renewals;
pub(crate) mod rights;
mod session_end;
mod silent;
pub(crate) mod support;
mod sweep;
mod waits;
