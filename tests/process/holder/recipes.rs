//! Locks that people write by themselves, in the place of dlock's. Each has one mistake but the first, and the checker must see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dlock::{Error, ErrorKind};
use dlock_contract::BootInstant;
use redis::Cmd;
use redis::aio::MultiplexedConnection;
use sqlx::SqlitePool;

use crate::arena::now;

/// A way to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// `SET NX PX`, and a script that compares and deletes: right as long as nothing outlives the ttl.
    Right,
    /// `DEL`, whoever has the lock by then.
    PlainDelete,
    /// `GET`, and `DEL` in a second request if it is the own value.
    CompareThenDelete,
    /// `GET`, and `SET` in a second request if there is nothing.
    LookThenSet,
    /// The lease in the store is shorter than told.
    ShortLease,
    /// A renewal is a `SET`, whoever has the lock by then.
    RenewalBySet,
    /// The lease counts from the answer.
    CountedFromReply,
    /// `finally` deletes the name, also if another owner has it.
    UnlockByName,
    /// A row with an end by the client's clock, of which each client has its own.
    ClientClock,
    /// A renewal is a `PEXPIRE`, whoever has the lock by then.
    RenewalByExpire,
    /// The owner is the process: a caller whose `SET NX` fails goes in if `GET` gives its own process.
    OwnerIsProcess,
    /// The end is in the value. An old end is taken over by a plain `SET`, and not by one that compares.
    TakeoverBySet,
    /// The caller believes in its lock until it unlocks.
    NoDeadline,
}

/// All of them.
pub(crate) const ALL: [Recipe; 13] = [
    Recipe::Right,
    Recipe::PlainDelete,
    Recipe::CompareThenDelete,
    Recipe::LookThenSet,
    Recipe::ShortLease,
    Recipe::RenewalBySet,
    Recipe::CountedFromReply,
    Recipe::UnlockByName,
    Recipe::ClientClock,
    Recipe::RenewalByExpire,
    Recipe::OwnerIsProcess,
    Recipe::TakeoverBySet,
    Recipe::NoDeadline,
];

impl Recipe {
    pub(super) fn named(name: &str) -> Self {
        ALL.into_iter().find(|recipe| format!("{recipe:?}") == name).unwrap()
    }
}

/// A client that locks in such a way.
pub(super) struct Recipes {
    recipe: Recipe,
    client: Client,
    namespace: String,
    ttl: Duration,
}

enum Client {
    Redis(MultiplexedConnection),
    Rows(SqlitePool),
}

/// Until when the caller of a recipe believes in its lock.
pub(super) struct Believed(AtomicU64);

impl Believed {
    pub(super) fn remaining(&self) -> Duration {
        BootInstant::from_nanos(self.0.load(Ordering::SeqCst)).since(now())
    }
}

impl Recipes {
    pub(super) async fn open(recipe: Recipe, url: &str, namespace: &str, ttl: Duration) -> Self {
        let client = if recipe == Recipe::ClientClock {
            let pool = SqlitePool::connect(&format!("{url}?mode=rwc")).await.unwrap();
            let table = "CREATE TABLE IF NOT EXISTS own (k TEXT PRIMARY KEY, owner TEXT, until INTEGER)";
            sqlx::query(table).execute(&pool).await.unwrap();
            Client::Rows(pool)
        } else {
            Client::Redis(redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap())
        };
        Self { recipe, client, namespace: namespace.to_owned(), ttl }
    }

    /// Runs the body under the lock, as the attribute does.
    pub(super) async fn run(
        &self,
        key: u32,
        waits: Duration,
        body: impl AsyncFnOnce(Arc<Believed>),
    ) -> Result<(), Error> {
        let is_process = self.recipe == Recipe::OwnerIsProcess;
        let owner = if is_process { super::var("PROCESS").parse().unwrap() } else { fastrand::u64(..) };
        let (name, owner) = (format!("own/{}/{key}", self.namespace), format!("{owner:016x}"));
        let start = now();
        let from = loop {
            let asked = now();
            if self.lock(&name, &owner).await.unwrap_or(false) {
                break if self.recipe == Recipe::CountedFromReply { now() } else { asked };
            }
            if now().since(start) >= waits {
                if self.recipe == Recipe::UnlockByName {
                    let _ = self.unlock(&name, &owner).await;
                }
                let kind = if waits.is_zero() { ErrorKind::Busy } else { ErrorKind::WaitTimeout };
                return Err(Error::new(kind, "taken"));
            }
            tokio::time::sleep(self.ttl / 20).await;
        };
        let until = if self.recipe == Recipe::NoDeadline { BootInstant::NEVER } else { from.after(self.ttl) };
        let believed = Arc::new(Believed(AtomicU64::new(until.as_nanos())));
        tokio::select! {
            () = body(believed.clone()) => {}
            () = self.renews(&name, &owner, &believed) => {}
        }
        let _ = self.unlock(&name, &owner).await;
        Ok(())
    }

    async fn lock(&self, name: &str, owner: &str) -> Result<bool, Box<dyn std::error::Error>> {
        let lease = if self.recipe == Recipe::ShortLease { self.ttl / 2 } else { self.ttl };
        match &self.client {
            Client::Rows(pool) => {
                let now = client_clock();
                let gone = sqlx::query("DELETE FROM own WHERE k = ? AND until < ?").bind(name).bind(now);
                gone.execute(pool).await?;
                let row = sqlx::query("INSERT OR IGNORE INTO own VALUES (?, ?, ?)").bind(name).bind(owner);
                Ok(row.bind(now + lease.as_millis() as i64).execute(pool).await?.rows_affected() == 1)
            }
            Client::Redis(client) => {
                let mut client = client.clone();
                let looks = self.recipe == Recipe::LookThenSet;
                if looks && redis::cmd("EXISTS").arg(name).query_async::<bool>(&mut client).await? {
                    return Ok(false);
                }
                if self.recipe == Recipe::TakeoverBySet {
                    return self.take_over(&mut client, name, owner).await;
                }
                let mut set = redis::cmd("SET");
                set.arg(name).arg(owner).arg("PX").arg(lease.as_millis() as u64);
                if !looks {
                    set.arg("NX");
                }
                let is_set = set.query_async::<Option<String>>(&mut client).await?.is_some();
                if is_set || self.recipe != Recipe::OwnerIsProcess {
                    return Ok(is_set);
                }
                let holder: Option<String> = redis::cmd("GET").arg(name).query_async(&mut client).await?;
                Ok(holder.as_deref() == Some(owner))
            }
        }
    }

    async fn take_over(
        &self,
        client: &mut MultiplexedConnection,
        name: &str,
        owner: &str,
    ) -> Result<bool, Box<dyn std::error::Error>> {
        let mut set = redis::cmd("SET");
        set.arg(name).arg(format!("{owner} {}", now().after(self.ttl).as_nanos()));
        let held: Option<String> = redis::cmd("GET").arg(name).query_async(client).await?;
        match held.and_then(|value| value.split_once(' ')?.1.parse().ok()) {
            Some(end) if BootInstant::from_nanos(end) > now() => return Ok(false),
            Some(_) => {}
            None => {
                set.arg("NX");
            }
        }
        Ok(set.query_async::<Option<String>>(client).await?.is_some())
    }

    /// Renews as long as it is polled; never, if the recipe has no renewal.
    async fn renews(&self, name: &str, owner: &str, believed: &Believed) {
        let Client::Redis(client) = &self.client else { return std::future::pending().await };
        let ms = self.ttl.as_millis() as u64;
        let mut renewal = Cmd::new();
        match self.recipe {
            Recipe::RenewalBySet => renewal.arg("SET").arg(name).arg(owner).arg("PX").arg(ms),
            Recipe::RenewalByExpire => renewal.arg("PEXPIRE").arg(name).arg(ms),
            _ => return std::future::pending().await,
        };
        loop {
            tokio::time::sleep(self.ttl / 3).await;
            let asked = now();
            if renewal.query_async(&mut client.clone()).await.unwrap_or(false) {
                believed.0.store(asked.after(self.ttl).as_nanos(), Ordering::SeqCst);
            }
        }
    }

    async fn unlock(&self, name: &str, owner: &str) -> Result<(), Box<dyn std::error::Error>> {
        let mut client = match &self.client {
            Client::Redis(client) => client.clone(),
            Client::Rows(pool) => {
                let own = sqlx::query("DELETE FROM own WHERE k = ? AND owner = ?").bind(name).bind(owner);
                return own.execute(pool).await.map(drop).map_err(Into::into);
            }
        };
        let is_own = match self.recipe {
            Recipe::PlainDelete | Recipe::UnlockByName => true,
            Recipe::CompareThenDelete => {
                let holder: Option<String> = redis::cmd("GET").arg(name).query_async(&mut client).await?;
                holder.as_deref() == Some(owner)
            }
            _ => {
                // The value may have an end after the owner.
                let script = "local value = redis.call('GET', KEYS[1])
                              if value and value:sub(1, 16) == ARGV[1] then return redis.call('DEL', KEYS[1]) end";
                let script = redis::Script::new(script);
                script.key(name).arg(owner).invoke_async::<Option<i64>>(&mut client).await?;
                false
            }
        };
        if is_own {
            redis::cmd("DEL").arg(name).query_async::<i64>(&mut client).await?;
        }
        Ok(())
    }
}

/// Milliseconds, as this host has set its clock: half a second apart from others.
fn client_clock() -> i64 {
    let process: i64 = super::var("PROCESS").parse().unwrap();
    (now().as_nanos() / 1_000_000) as i64 + process % 2 * 500
}
