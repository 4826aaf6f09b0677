#![deny(warnings)]
//! Functions of typical services, with options whose expressions use the parameters.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dlock::{Error, Key, KeyPart, Outcome, distributed_lock};
use tracing::instrument;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

struct Config {
    ttl: Duration,
    store: Arc<str>,
}

struct Repository<'a, T: ?Sized> {
    config: &'a Config,
    inner: Arc<T>,
}

fn key_of(id: u64) -> Result<Key, Error> {
    Ok(Key::text("order:").value(&id))
}

impl<'a, T> Repository<'a, T>
where
    T: Display + Send + Sync + ?Sized,
{
    #[distributed_lock(key = key_of(id)?, ttl = self.config.ttl, backend = self.config.store, guard = held)]
    pub(crate) async fn by_expression(&self, id: u64) -> Result<(&'a Config, String), BoxError> {
        let shown = self.inner.to_string();
        std::future::ready(()).await;
        held.check()?;
        Ok((self.config, shown))
    }

    #[instrument(skip_all)]
    #[distributed_lock(keys = ["order:<ids..>", "config"], wait = self.config.ttl / 2, on_busy = call(Self::blocking_instead))]
    fn blocking<'b>(&'b mut self, ids: &BTreeSet<u64>) -> Result<&'b mut Arc<T>, BoxError> {
        for id in ids {
            if *id == 0 {
                return Err("no order".into());
            }
        }
        Ok(&mut self.inner)
    }

    fn blocking_instead<'b>(&'b mut self, ids: &BTreeSet<u64>) -> Result<&'b mut Arc<T>, BoxError> {
        if ids.is_empty() { Err("nothing".into()) } else { Ok(&mut self.inner) }
    }

    #[distributed_lock(key = "shared", on_busy = call(Repository::<'a, T>::later))]
    async fn shared(self: Arc<Self>, n: u8) -> Result<u8, Error> {
        Ok(n)
    }

    async fn later(self: Arc<Self>, n: u8) -> Result<u8, Error> {
        Ok(std::future::ready(n).await)
    }
}

#[async_trait]
trait Ledger: Send + Sync {
    fn ttl(&self) -> Duration;
    async fn book(&self, from: u64, to: u64, reason: String) -> Result<usize, BoxError>;

    #[distributed_lock(key = "balance:<id>", ttl = self.ttl(), fence = token, on_busy = skip)]
    async fn balance(&self, id: u64) -> Option<u64> {
        Some(token.get() + id)
    }
}

struct Bank(Config);

#[async_trait]
impl Ledger for Bank {
    fn ttl(&self) -> Duration {
        self.0.ttl
    }

    #[distributed_lock(keys = ["account:<from>", "account:<to>"], ttl = self.0.ttl, backend = &self.0.store, guard = held)]
    async fn book(&self, from: u64, to: u64, reason: String) -> Result<usize, BoxError> {
        held.iter().try_for_each(|held| held.check())?;
        Ok(reason.len() + usize::from(from == to))
    }
}

trait Audit {
    fn name(&self) -> String;

    #[distributed_lock(key = Key::text("audit:").value(&self.name()), on_busy = call(Self::skipped))]
    fn audit(&self, lines: &[String]) -> Outcome<usize>
    where
        Self: Sized,
    {
        lines.len().into()
    }

    fn skipped(&self, lines: &[String]) -> Outcome<usize> {
        lines.iter().filter(|line| line.is_empty()).count().into()
    }
}

impl Audit for Bank {
    fn name(&self) -> String {
        self.0.store.to_string()
    }
}

#[distributed_lock(key = "shown:<N>:<id>")]
fn hidden<const N: usize, K: KeyPart>(id: K) -> Result<impl Display + use<N, K>, Error> {
    drop(id);
    Ok(N)
}

#[distributed_lock(key = "closure")]
fn with_closure<F, E>(mut each: F) -> Result<u32, E>
where
    F: FnMut(u32) -> Result<u32, E>,
    E: From<Error>,
{
    each(1)
}

#[tokio::main(flavor = "current_thread")]
#[distributed_lock(key = "main below")]
async fn lock_below_main() -> Result<u8, Error> {
    tokio::task::yield_now().await;
    Ok(5)
}

pub(crate) fn make() {
    crate::install();
    let config = Config { ttl: Duration::from_secs(5), store: "memory".into() };
    let mut repository: Repository<'_, str> = Repository { config: &config, inner: "a".into() };
    drop(repository.by_expression(1));
    assert!(repository.blocking(&BTreeSet::from([1, 2])).is_ok());
    drop(Arc::new(repository).shared(1));
    let bank = Bank(Config { ttl: Duration::from_secs(5), store: "memory".into() });
    drop((bank.book(1, 2, String::new()), bank.balance(1)));
    assert!(matches!(bank.audit(&[String::new()]), Outcome::Ran(1)));
    assert_eq!(hidden::<3, _>(1).expect("free").to_string(), "3");
    assert_eq!(with_closure(|n| Ok::<_, Error>(n + 1)).expect("free"), 2);
    assert_eq!(lock_below_main().expect("free"), 5);
}
