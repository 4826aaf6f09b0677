//! A lock of an article as the suite sees it, and the suite over it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use dlock::{Clock, Error, LockKey, Result};
use dlock_conformance::{Outage, Outcome, Store, cases, closed};
use dlock_contract::{
    Attempt, Backend, Claim, Health, Hold, LockState, Profile, Queue, Released, Standing, TtlRange, Validity, Wake,
};
use dlock_testkit::servers::shared;
use dlock_testkit::{Mode, Proxy};
use futures::future::{BoxFuture, join_all, ready};
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlPool, MySqlPoolOptions};

/// The functions of an article. An error is what its client library gives.
pub(crate) trait Recipe: Send + Sync + 'static {
    /// Tries once. `now` is the client's clock, in milliseconds since 1970.
    fn try_lock<'a>(&'a self, key: &'a str, owner: &'a str, ttl: Duration, now: i64) -> BoxFuture<'a, Told<bool>>;

    /// Most articles have none; the lock then ends at its ttl.
    fn renew<'a>(&'a self, _key: &'a str, _owner: &'a str, _ttl: Duration) -> BoxFuture<'a, Told<bool>> {
        Box::pin(ready(Ok(true)))
    }

    fn unlock<'a>(&'a self, key: &'a str, owner: &'a str) -> BoxFuture<'a, Told<bool>>;

    /// Frees the lock for an operator. The default is `unlock`, as many recipes do not check the owner.
    fn evict<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Told<bool>> {
        self.unlock(key, "")
    }
}

pub(crate) type Told<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A client with such functions.
struct Naive<R> {
    recipe: R,
    clock: Clock,
    profile: Profile,
}

impl<R: Recipe> Backend for Naive<R> {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, _: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            let (from, owner) = (self.clock.now(), claim.owner.to_hex());
            let now = i64::try_from(self.clock.wall_ms()).unwrap_or(i64::MAX);
            let is_ours = self.recipe.try_lock(claim.key.as_str(), &owner, claim.ttl, now).await.map_err(told)?;
            let hold = || Hold::without_token(claim.clone(), Validity::new(from, claim.ttl));
            Ok(if is_ours { Attempt::Acquired(hold()) } else { Attempt::Contended(Wake::poll()) })
        })
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(join_all(holds.iter().map(|hold| async {
            let (from, claim) = (self.clock.now(), &hold.claim);
            let answer = self.recipe.renew(claim.key.as_str(), &claim.owner.to_hex(), claim.ttl).await.map_err(told)?;
            Ok(if answer { Standing::Renewed(Validity::new(from, claim.ttl)) } else { Standing::Lost })
        })))
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async {
            let owner = hold.claim.owner.to_hex();
            let freed = self.recipe.unlock(hold.claim.key.as_str(), &owner).await.map_err(told)?;
            Ok(if freed { Released::Released } else { Released::NotOwner })
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { self.recipe.unlock(claim.key.as_str(), &claim.owner.to_hex()).await.map(drop).map_err(told) })
    }

    fn look<'a>(&'a self, _: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async { Ok(LockState::new(Vec::new(), None)) })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(async { Ok(Health::new()) })
    }
}

fn told(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::outage(error.to_string())
}

/// The store of a recipe.
struct Recipes<F> {
    open: F,
    proxy: Option<Arc<Proxy>>,
}

impl<F, R> Store for Recipes<F>
where
    F: Fn() -> BoxFuture<'static, Told<R>> + Send + Sync,
    R: Recipe,
{
    fn name(&self) -> String {
        "a recipe".into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        Box::pin(async {
            let ttl = TtlRange::new(Duration::from_millis(10), Duration::from_secs(86_400));
            let recipe = (self.open)().await.map_err(told)?;
            Ok(Arc::new(Naive { recipe, clock, profile: Profile::new("naive", ttl) }) as Arc<dyn Backend>)
        })
    }

    fn leftovers<'a>(&'a self, _: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async {
            let recipe = (self.open)().await.map_err(told)?;
            recipe.evict(key.as_str()).await.map(drop).map_err(told)
        }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        struct Ends(Arc<Proxy>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.set(Mode::Pass);
            }
        }
        let proxy = self.proxy.clone()?;
        proxy.set(match outage {
            Outage::Refused => Mode::Refuse,
            Outage::Silent => Mode::BLACKHOLE,
            Outage::AnswerLost => Mode::DropReplies,
            Outage::AnswerSilent => Mode::Blackhole { to_server: false, to_client: true },
            Outage::Late => return None,
        });
        Some(Box::pin(async move { Ok(Box::new(Ends(proxy)) as Box<dyn Any + Send>) }))
    }
}

/// Runs the suite's cases over the recipe: these fail, and the lock is one for a single caller.
pub(crate) async fn is_caught<R: Recipe>(
    open: impl Fn() -> BoxFuture<'static, Told<R>> + Send + Sync,
    by: &[&str],
) -> Vec<String> {
    is_caught_behind(None, open, by).await
}

/// How often a case runs again that did not meet the gap.
const AGAIN: usize = 10;

/// The same for a store behind a proxy.
pub(crate) async fn is_caught_behind<R: Recipe>(
    proxy: Option<Arc<Proxy>>,
    open: impl Fn() -> BoxFuture<'static, Told<R>> + Send + Sync,
    by: &[&str],
) -> Vec<String> {
    let store = Recipes { open, proxy };
    let run = async |name: &str| {
        let case = cases().iter().find(|case| case.name() == name);
        case.unwrap_or_else(|| panic!("the suite has no case `{name}`"))
            .run(&store, &closed(&store).await.unwrap())
            .await
    };
    let works = "a release frees the lock and says so";
    assert_eq!(run(works).await, Outcome::Passed, "it is no lock at all, so nothing is proven");
    let mut texts = Vec::new();
    for name in by {
        // Owners at once meet the recipe's gap by chance.
        let mut outcome = run(name).await;
        for _ in 0..AGAIN {
            if outcome == Outcome::Passed {
                outcome = run(name).await;
            }
        }
        match outcome {
            Outcome::Failed(text) => texts.push(text),
            outcome => panic!("the suite did not catch the recipe by `{name}`: {outcome}"),
        }
    }
    texts
}

/// One session of a client's own.
pub(crate) async fn pool_of(options: MySqlConnectOptions) -> Told<MySqlPool> {
    Ok(MySqlPoolOptions::new().max_connections(1).connect_with(options).await?)
}

/// The server's number of an error.
pub(crate) fn number_of(error: &sqlx::Error) -> Option<u16> {
    error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
}

/// A pool of so many connections in MariaDB and in MySQL, with a table of the recipe's own.
pub(crate) async fn pools(table: &str, connections: u32) -> Vec<MySqlPool> {
    let mut pools = Vec::new();
    for url in [shared().mariadb().unwrap(), shared().mysql().unwrap()] {
        let pool = MySqlPoolOptions::new().max_connections(connections).connect(&url).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(table.to_owned())).execute(&pool).await.unwrap();
        pools.push(pool);
    }
    pools
}
