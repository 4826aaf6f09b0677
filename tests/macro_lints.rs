#![deny(warnings, clippy::all, clippy::pedantic)]
#![forbid(unsafe_code)]
//! The expansion is silent under every lint, and the lints still see the user's own code. Clippy reads this file too.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dlock::{Conflict, Error, Key, KeyPart, Outcome, Wait, distributed_lock, optimistic, scheduled_lock};
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
async fn pattern((a, b): (u8, u8)) -> Result<impl IntoIterator<Item = u8>, Error> {
    use std::iter::repeat_n;
    Ok(repeat_n(b, usize::from(a)))
}

#[expect(unused_variables, clippy::len_zero, reason = "the lints see the user's own code")]
#[distributed_lock(key = "a")]
async fn seen(text: &str) -> Result<bool, Error> {
    let unused = 5;
    Ok(text.len() == 0)
}

#[expect(unused_variables, unused_mut, reason = "the lints see the parameters that the body does not use")]
#[distributed_lock(key = "a")]
async fn unused((a, mut b): (String, String), mut n: u32, #[cfg(any())] gone: u8) -> Result<u32, Error> {
    drop(b);
    Ok(n)
}

#[distributed_lock(key = "<id>:<c>:<d>", ttl = Duration::from_secs(ttl))]
fn only_dropped(
    _out: String,
    _: String,
    (_a, _): (String, String),
    #[expect(unused_variables, reason = "a lint of one parameter")] n: u32,
    Pair { c, ref d, .. }: Pair,
    id: u64,
    ttl: u64,
) -> Result<(), Error> {
    Ok(())
}

struct Pair {
    c: String,
    d: String,
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

#[distributed_lock(
    key = "options:<id>", ttl = "30s", wait = "5s", attempts = 5, backoff = "100ms..5s", max_waiters = 10,
    backend = "redis", mode = exclusive, fair, cohort = false, reentrant = true, renew = "5s", max_hold = "1h",
    timeout = "20s", min_hold = "1s", once_per = "1m", rerun = "on_crash", on_busy = call(instead), on_lost = continue,
    on_outage = skip, retry = "5, 100ms..2s", guard = held, fence = token, name = "all options", crate = ::dlock
)]
async fn all_options(id: String, n: u64) -> Result<Option<u64>, Error> {
    held.check()?;
    std::future::ready(()).await;
    Ok(Some(token.get() + n + id.len() as u64))
}

async fn instead(id: String, n: u64) -> Result<Option<u64>, Error> {
    drop(id);
    Ok(Some(std::future::ready(n).await))
}

const STORE: &str = "redis";
const WORKERS: u32 = 3;
const LIMIT: Duration = Duration::from_secs(20);

#[distributed_lock(
    key = "constants", attempts = WORKERS + 2, max_waiters = WORKERS, mode = permits(WORKERS), renew = Duration::from_secs(5),
    max_hold = LIMIT.saturating_mul(10), timeout = LIMIT, min_hold = LIMIT, wait = none, on_busy = call(at_once)
)]
async fn constants(id: u64) -> Result<u64, Error> {
    Ok(std::future::ready(id).await)
}

fn at_once(id: u64) -> Result<u64, Error> {
    dlock::current().map_or(Ok(id), |held| held.check().map(|()| id))
}

#[optimistic(retries = WORKERS)]
fn again_by_constant(id: u64) -> Result<u64, OrderError> {
    Ok(id)
}

#[distributed_lock(key = Key::text("a:").value(&id), ttl = Duration::from_secs(id), wait = Wait::None, backend = STORE)]
async fn expressions(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(keys = ["a:<a>", "b:<b>:<list..>"], guard = both, cohort = "64/3s", mode = permits(3))]
async fn several(a: u8, b: u8, list: &[u8]) -> Result<usize, Error> {
    Ok(both.len())
}

#[distributed_lock(key = "<id>", guard = held, fence = token, once_per = "1m", on_busy = "skip", retry = false)]
fn blocking(id: u64, text: &mut String) -> Option<&str> {
    held.check().ok()?;
    text.push_str(&token.get().to_string());
    Some(text)
}

#[distributed_lock(keys = "all:<ids..>", guard = held, on_busy = call(blocking_instead))]
fn blocking_several(ids: &[u64]) -> Outcome<u64> {
    held.iter().map(|held| u64::from(held.slot().unwrap_or(0))).sum::<u64>().into()
}

fn blocking_instead(ids: &[u64]) -> Outcome<u64> {
    ids.iter().sum::<u64>().into()
}

#[scheduled_lock(name = "report", at_most = "30m", at_least = "5m", on_outage = skip)]
async fn scheduled() {
    std::future::ready(()).await;
}

#[scheduled_lock(name = "report:<region>", at_most = "30m", once_per = "1m")]
fn scheduled_blocking(region: &str) -> Option<usize> {
    Some(region.len())
}

impl Conflict for OrderError {
    fn is_conflict(&self) -> bool {
        matches!(self, OrderError::Empty)
    }
}

#[optimistic]
async fn again(id: u64, text: &str) -> Result<&str, OrderError> {
    if id == 0 {
        return Err(OrderError::Empty);
    }
    std::future::ready(()).await;
    Ok(text)
}

#[optimistic(retries = 5, backoff = "1ms..2ms")]
fn again_blocking(id: &mut u64) -> Result<u64, OrderError> {
    *id += 1;
    Ok(*id)
}

#[test]
fn every_annotated_plain_function_can_be_called() {
    let pair = || (String::new(), String::new());
    let of_two = Pair { c: String::new(), d: String::new() };
    assert!(only_dropped(String::new(), String::new(), pair(), 1, of_two, 2, 3).is_err());
    drop(unused(pair(), 1));
    drop((
        all_options(String::new(), 1),
        constants(1),
        again_by_constant(1),
        expressions(1),
        several(1, 2, &[3]),
        scheduled(),
        again(1, "a"),
    ));
    let _ = (blocking(1, &mut String::new()), scheduled_blocking("north"), again_blocking(&mut 1));
    let _: Outcome<u64> = blocking_several(&[1]);
}

#[test]
fn every_annotated_async_function_is_a_future() {
    drop((deduct(7, 2), nothing_to_do(), in_the_key_only(1), generic::<_, 2>("a", 5), pattern((1, 2)), seen("a")));
    let mut shop = Shop { id: String::new() };
    drop(shop.changed("a"));
    drop(shop.restock(1));
    drop(Arc::new(shop).instrumented());
}
