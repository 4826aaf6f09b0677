#![no_implicit_prelude]
#![forbid(unsafe_code)]
#![deny(warnings)]
//! The expansion uses no name from the scope of the function, and hides none.

mod core {}
mod std {}
mod dlock {}
#[allow(dead_code, reason = "only there to be in the way")]
struct Site;
#[allow(dead_code, reason = "only there to be in the way")]
enum Option {}

/// Types with the names of the primitive ones.
mod primitive_names {
    macro_rules! in_the_way {
        ($($name:ident)*) => { $(#[allow(dead_code, non_camel_case_types, reason = "only there to be in the way")] struct $name;)* };
    }
    in_the_way!(bool char str u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

    const WAITERS: ::core::primitive::u32 = 5;

    #[::dlock::distributed_lock(
        key = "a:<id>", max_waiters = WAITERS, attempts = WAITERS, mode = permits(WAITERS), cohort = "5/1s", retry = "5, 1ms..2ms",
        ttl = "1s", guard = held, fence = token, on_busy = call(instead), on_outage = skip
    )]
    async fn all(id: ::core::primitive::u8) -> ::dlock::Outcome<::core::primitive::u64> {
        let _ = held.check();
        ::dlock::Outcome::Ran(token.get())
    }

    fn instead(_: ::core::primitive::u8) -> ::dlock::Outcome<::core::primitive::u64> {
        ::dlock::Outcome::Ran(5)
    }

    #[::dlock::distributed_lock(keys = ["a:<list..>", "b"], max_waiters = 5)]
    fn several(list: &[::core::primitive::u8], (_a, ..): (::core::primitive::u8, ())) -> ::dlock::Outcome<()> {
        ::dlock::Outcome::Ran(())
    }

    #[::dlock::scheduled_lock(name = "task", at_most = "1s", once_per = "1m")]
    async fn task() {}

    #[::dlock::optimistic(retries = WAITERS)]
    fn again() -> ::core::result::Result<(), ::dlock::Error> {
        ::core::result::Result::Ok(())
    }

    pub(super) fn make() {
        ::core::mem::drop((all(1), task(), again(), several(&[1], (1, ()))));
    }
}

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
    primitive_names::make();
    ::core::mem::drop((several(&[1]), task(), again(1), again_blocking(1)));
    ::core::mem::drop(blocking(1, ::core::time::Duration::from_secs(1)));
    ::core::mem::drop(locked(1, 2));
}
