#![no_implicit_prelude]
#![forbid(unsafe_code)]
#![deny(warnings)]
//! The expansion uses no name from the scope of the function, and hides none.

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

#[::dlock::distributed_lock(
    keys = ["a:<list..>", "b"],
    guard = __dlock_held,
    on_busy = call(instead),
    on_outage = skip,
    mode = permits(2),
    retry = 5,
    cohort = "5/1s"
)]
async fn several(list: &[u8]) -> ::dlock::Outcome<usize> {
    ::dlock::Outcome::Ran(__dlock_held.len())
}

async fn instead(list: &[u8]) -> ::dlock::Outcome<usize> {
    ::dlock::Outcome::Ran(list.len())
}

#[::dlock::distributed_lock(key = "a:<id>", guard = __dlock_error, fence = __dlock_value, once_per = "1s", ttl = ttl)]
fn blocking(id: u8, ttl: ::core::time::Duration) -> ::core::result::Result<u64, ::dlock::Error> {
    __dlock_error.check()?;
    ::core::result::Result::Ok(__dlock_value.get())
}

#[::dlock::scheduled_lock(name = "task", at_most = "1s", at_least = "500ms")]
async fn task() {}

#[::dlock::optimistic]
async fn again(__dlock_attempts: u8) -> ::core::result::Result<u8, ::dlock::Error> {
    ::core::result::Result::Ok(__dlock_attempts)
}

#[::dlock::optimistic]
fn again_blocking(__dlock_attempts: u8) -> ::core::result::Result<u8, ::dlock::Error> {
    ::core::result::Result::Ok(__dlock_attempts)
}

pub(crate) fn make() {
    ::core::mem::drop((several(&[1]), task(), again(1), again_blocking(1)));
    ::core::mem::drop(blocking(1, ::core::time::Duration::from_secs(1)));
    ::core::mem::drop(locked(1, 2));
}
