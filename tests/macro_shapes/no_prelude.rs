#![no_implicit_prelude]
#![forbid(unsafe_code)]
#![deny(warnings)]
//! Nothing is taken from the names of the place where the function stands, and none is taken away.

mod core {}
mod std {}
mod dlock {}
// Only there to be in the way.
#[allow(dead_code)]
struct Site;
// Only there to be in the way.
#[allow(dead_code)]
enum Option {}

// Shadows of names that the expansion uses too.
#[::dlock::distributed_lock(key = "a:<__dlock_key>", ttl = "1s", wait = "none", renew = "300ms", backend = "b")]
async fn locked(__dlock_key: u8, __dlock_k: u8) -> ::core::result::Result<u8, ::dlock::Error> {
    ::core::result::Result::Ok(__dlock_key + __dlock_k)
}

pub(crate) fn make() {
    ::core::mem::drop(locked(1, 2));
}
