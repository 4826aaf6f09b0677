#![deny(warnings)]
//! A function that comes from `macro_rules!`, whole or in parts.

use dlock::{Error, distributed_lock};

macro_rules! whole {
    ($name:ident, $ty:ty) => {
        #[distributed_lock(key = "whole:<id>", ttl = "5s")]
        async fn $name(id: $ty) -> Result<$ty, Error> {
            let twice = id + id;
            Ok(twice)
        }
    };
}

macro_rules! parts {
    ($key:literal, $ttl:expr, $pat:pat, $ret:ty, $body:block) => {
        #[distributed_lock(key = $key, ttl = $ttl)]
        async fn parts($pat: (u8, u8)) -> $ret $body
    };
}

macro_rules! only_key {
    ($($function:tt)*) => {
        #[distributed_lock(key = "parts:<id>:<self.0>")]
        $($function)*
    };
}

macro_rules! all_parts {
    ($name:ident, $crate_path:path, $guard:ident, $call:path, $time:expr, $mode:expr, $template:literal, $flag:expr) => {
        #[distributed_lock(key = $template, crate = $crate_path, guard = $guard, on_busy = call($call), ttl = $time,
                                    mode = $mode, fair = $flag, backend = concat!("mem", "ory"), max_hold = "1h")]
        fn $name(id: u8) -> Result<u8, Error> {
            $guard.check()?;
            Ok(id)
        }
    };
}

fn busy(id: u8) -> Result<u8, Error> {
    Ok(id)
}

all_parts!(sync, ::dlock, held, busy, std::time::Duration::from_secs(5), permits(2), "sync:<id>", true);

macro_rules! optimistic {
    ($name:ident, $body:block) => {
        #[dlock::optimistic(retries = 1)]
        async fn $name() -> Result<u8, Error> $body
    };
}

optimistic!(again, { Ok(5) });

whole!(small, u8);
whole!(large, u64);
parts!("parts:<a>", "1m", (a, b), Result<u8, Error>, { Ok(a + b) });

struct Shop(u8);

impl Shop {
    only_key! {
        async fn sell(&self, id: u8) -> Result<u8, Error> {
            Ok(id + self.0)
        }
    }
}

pub(crate) fn make() {
    drop(sync(1));
    drop(again());
    drop(small(1));
    drop(large(1));
    drop(parts((1, 2)));
    drop(Shop(1).sell(2));
}
