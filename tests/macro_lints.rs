#![deny(warnings, clippy::all, clippy::pedantic)]
#![forbid(unsafe_code)]
//! The expansion is silent under every lint, and the lints still see the user's own code. Clippy reads this file too.

use std::fmt::Display;
use std::sync::Arc;

use async_trait::async_trait;
use dlock::{Error, KeyPart, distributed_lock};
use tracing::instrument;

enum OrderError {
    Empty,
    Lock,
}

impl From<Error> for OrderError {
    fn from(_: Error) -> Self {
        OrderError::Lock
    }
}

#[distributed_lock(key = "stock:<id>", ttl = "30s", backend = "redis", wait = "5s", renew = true)]
async fn deduct(id: u64, mut n: u32) -> Result<u32, OrderError> {
    const STEP: u32 = 1;
    if n == 0 {
        return Err(OrderError::Empty);
    }
    n -= STEP;
    let id = u32::try_from(id).map_err(|_| OrderError::Empty)?;
    std::future::ready(()).await;
    Ok(n + id)
}

#[distributed_lock(key = "nightly")]
async fn nothing_to_do() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "<id>")]
async fn in_the_key_only(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "<id>:<N>")]
async fn generic<K: KeyPart + Clone, const N: usize>(id: K, shown: impl Display) -> Result<[String; N], Error> {
    drop(id.clone());
    Ok(std::array::from_fn(|_| shown.to_string()))
}

#[distributed_lock(key = "<a>:<b>")]
#[distributed_lock(key = "<b>")]
async fn pattern((a, b): (u8, u8)) -> Result<impl Iterator<Item = u8>, Error> {
    use std::iter::repeat_n;
    Ok(repeat_n(b, usize::from(a)))
}

#[expect(unused_variables, clippy::len_zero, reason = "the lints see the user's own code")]
#[distributed_lock(key = "a")]
async fn seen(text: &str) -> Result<bool, Error> {
    let unused = 5;
    Ok(text.len() == 0)
}

struct Shop {
    id: String,
}

impl Shop {
    #[instrument(skip(self))]
    #[distributed_lock(key = "<self.id>")]
    async fn instrumented(self: Arc<Self>) -> Result<usize, Error> {
        Ok(self.id.len())
    }

    #[distributed_lock(key = "<self.id>")]
    async fn changed(&mut self, with: &str) -> Result<&str, Error> {
        self.id.push_str(with);
        Ok(&self.id)
    }
}

#[async_trait]
trait Restock {
    async fn restock(&mut self, n: u32) -> Result<u32, OrderError>;
}

#[async_trait]
impl Restock for Shop {
    #[distributed_lock(key = "<self.id>")]
    async fn restock(&mut self, n: u32) -> Result<u32, OrderError> {
        const STEP: u32 = 1;
        self.id.clear();
        Ok(n + STEP)
    }
}

#[test]
fn everything_is_a_future() {
    drop((deduct(7, 2), nothing_to_do(), in_the_key_only(1), generic::<_, 2>("a", 5), pattern((1, 2)), seen("a")));
    let mut shop = Shop { id: String::new() };
    drop(shop.changed("a"));
    drop(shop.restock(1));
    drop(Arc::new(shop).instrumented());
}
