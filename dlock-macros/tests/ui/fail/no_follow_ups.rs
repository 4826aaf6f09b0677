//! A broken attribute is its own message and nothing else: no warning about the function, its callers or the imports
//! that only the attribute needs, and no error about what the attribute would have given to the body.
#![warn(unused, clippy::pedantic)]

mod config {
    use std::time::Duration;

    use dlock::{Error, Key};

    pub const TTL: Duration = Duration::from_secs(3);
    pub const PERMITS: u32 = 3;

    pub fn key(id: u64) -> Key {
        Key::text("a").value(&id)
    }

    pub async fn instead(_: u64) -> Result<(), Error> {
        Ok(())
    }

    pub fn any<T: Default>(_: u64) -> Result<T, Error> {
        Ok(T::default())
    }
}

mod imports {
    use dlock::{Error, distributed_lock, optimistic};

    use super::config::{PERMITS, TTL, any, instead, key};
    use crate::config::TTL as WAIT;

    #[distributed_lock(key = key(id), ttl = TTL, on_busy = call(instead), mode = permits(PERMITS), waits = WAIT, tl = TTL)]
    pub async fn several(id: u64) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "a", cohort = TTL, on_busy = call(any))]
    pub const fn generic(id: u64, mut n: u8) -> Result<u64, Error> {
        Ok(3)
    }

    #[optimistic(retries = PERMITS, backof = "1s")]
    pub fn again(id: String) -> Result<usize, Error> {
        drop(id);
        Ok(id.len())
    }
}

mod bodies {
    use std::collections::HashMap;

    use dlock::{Error, distributed_lock, scheduled_lock};

    #[distributed_lock(key = "<idd>", guard = held, fence = token)]
    pub fn names(id: u64) -> Result<u64, Error> {
        let mut map = HashMap::new();
        map.insert(1, token.get());
        held.check()?;
        Ok(map.values().sum())
    }

    #[distributed_lock(key = "a", gaurd = held, fence = "token")]
    pub async fn misspelt_names(id: u64) -> Result<u64, Error> {
        held.confirm().await?;
        Ok(token.get())
    }

    #[distributed_lock(key = "a", guard: held, fence(token))]
    pub fn other_languages(id: u64) -> Result<u64, Error> {
        held.check()?;
        Ok(token.get())
    }

    #[distributed_lock(key = "a", guard = x, fence = y)]
    pub async fn parameters(x: u64, y: u64) -> Result<u64, Error> {
        Ok(x + y)
    }

    #[distributed_lock(key = "a", guard = x)]
    pub async fn bound((x, y): (u64, u64)) -> Result<u64, Error> {
        x.check()?;
        Ok(y)
    }

    #[distributed_lock(key = "a", guard = x, fence = x)]
    pub fn one_name(x: u64) -> Result<u64, Error> {
        x.check()?;
        Ok(x.get())
    }

    #[distributed_lock(key = "a", on_busy = Skip, mode = permits(three), cohort = On, retry = Times)]
    pub fn words() -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "a", mode = Mode::Read, on_lost = OnLost::Cancel)]
    pub fn types() -> Result<(), Error> {
        Ok(())
    }

    #[scheduled_lock(name = "a")]
    pub fn scheduled(region: &str) {}
}

struct Shop {
    id: u64,
}

impl Shop {
    #[distributed_lock(key = "<self.id", wait = self.wait(item).await?)]
    async fn method(&mut self, item: String, mut n: u8) -> Result<(), dlock::Error> {
        self.id += 1;
        Ok(())
    }

    async fn wait(&self, _: String) -> Result<std::time::Duration, dlock::Error> {
        Ok(config::TTL)
    }
}

#[async_trait]
trait Restock {
    #[distributed_lock(key = "<self.id", guard = held, ttl = self.ttl().await?)]
    async fn restock(&self, item: String) -> Result<(), dlock::Error> {
        held.check()
    }

    async fn ttl(&self) -> Result<std::time::Duration, dlock::Error>;
}

use async_trait::async_trait;
use dlock::distributed_lock;

fn main() {
    drop((imports::several(1), imports::again(String::new()), bodies::names(1), bodies::misspelt_names(1)));
    drop((bodies::other_languages(1), bodies::parameters(1, 2), bodies::bound((1, 2)), bodies::one_name(1)));
    drop(Shop { id: 1 }.method(String::new(), 1));
    bodies::scheduled("north");
    const _: Result<u64, dlock::Error> = imports::generic(1, 2);
}
