//! Pairs that cannot be, and what a pair does not offer.

use std::sync::Arc;

use dlock_contract::{
    Attempt, Backend, Claim, Error, ErrorKind, Fencing, Health, Hold, LockKey, LockState, Profile, Queue, Released,
    Result, RunsOn, Settle, Standing,
};
use dlock_memory::Memory;
use dlock_paired::{GateDown, Migrating, Paired};
use dlock_store::Clock;
use dlock_testkit::holds::{claim, take};
use dlock_testkit::servers::shared;
use futures::future::BoxFuture;

use crate::kit::{Kit, TTL};

async fn url(of: fn() -> dlock_testkit::Result<String>) -> String {
    tokio::task::spawn_blocking(of).await.unwrap().unwrap()
}

fn message(pair: Result<impl std::fmt::Debug, Error>) -> String {
    let error = pair.expect_err("a pair that cannot be was made");
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error:?}");
    error.message().to_owned()
}

#[tokio::test]
async fn a_store_is_no_pair_of_itself() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    assert!(message(Paired::builder(store.clone(), store.clone()).build()).contains("the same one"));
    assert!(message(Migrating::builder(store.clone(), store).build()).contains("the same one"));
}

/// With literal names `user:<id>` with the id `admin` is the lock `user:admin`. Elsewhere these are two locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_differ_in_which_keys_are_one_lock_are_refused() {
    let redis = url(|| shared().redis()).await;
    let literal = dlock_redis::Literal::connect(&format!("{redis}?keys=literal"), &Clock::system()).await.unwrap();
    let literal: Arc<dyn Backend> = Arc::new(literal);
    let plain: Arc<dyn Backend> = Arc::new(Memory::new());
    for stores in [[literal.clone(), plain.clone()], [plain.clone(), literal.clone()]] {
        let [one, other] = stores;
        let text = message(Paired::builder(one.clone(), other.clone()).build());
        assert!(text.contains("must agree which keys are one lock"), "{text}");
        assert!(message(Migrating::builder(one, other).build()).contains("which keys are one lock"));
    }
    // Two stores that write literal names agree.
    let other = dlock_redis::Literal::connect(&format!("{redis}?keys=literal"), &Clock::system()).await.unwrap();
    let pair = Paired::builder(literal, Arc::new(other)).build().unwrap();
    assert!(!pair.profile().any_key);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_offers_what_both_can_do_and_the_fence_of_its_authority() {
    let kit = Kit::new().await;
    let pair = kit.pair(GateDown::Fail).await;
    let (gate, authority) = (kit.gate.store.profile(), kit.authority.store.profile());
    assert!(gate.read_write && !authority.read_write && !pair.profile().read_write);
    assert!(gate.permits && !authority.permits && !pair.profile().permits);
    assert_eq!(pair.profile().fencing, authority.fencing);
    assert_eq!(pair.profile().durability, authority.durability);
    assert!(pair.tokens().is_none() && pair.exchange().is_none() && pair.batch().is_none());
    // The order of the gate's waiters is the pair's, unless callers may come past the gate.
    assert!(pair.profile().fair);
    assert!(!kit.pair(GateDown::Authority).await.profile().fair);
    // An authority without tokens: the pair has none either, whatever the gate has.
    let mariadb = url(|| shared().mariadb()).await;
    let named = dlock_mysql::named::open(&format!("{mariadb}?way=named"), &Clock::system()).await.unwrap();
    let fencing = named.profile().fencing;
    let pair = Paired::builder(Arc::new(Memory::new()), Arc::new(named)).build().unwrap();
    assert_eq!(pair.profile().fencing, fencing);
    assert_eq!(pair.profile().runs_on, RunsOn::Caller);
    assert_ne!(Memory::new().profile().fencing, Fencing::None);
}

/// Stores that are installed under names of their own are closed by whoever installed them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_of_installed_stores_leaves_them_open() {
    let kit = Kit::new().await;
    let pair = Paired::builder(kit.gate.store.clone(), kit.authority.store.clone());
    let pair = pair.keep_members_open().build().unwrap();
    let hold = take(&pair, &claim("kept open", TTL)).await;
    pair.release(&hold).await.unwrap();
    pair.close().await;
    let again = kit.gate.taken_by_another(&hold.claim.key).await;
    kit.gate.store.release(&again).await.unwrap();
}

/// Memory that would make the work of a body final, as row locks do.
struct Settling(Memory);

impl Backend for Settling {
    fn profile(&self) -> &Profile {
        self.0.profile()
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        self.0.try_acquire(claim, queue)
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        self.0.renew(holds)
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        self.0.release(hold)
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        self.0.abandon(claim)
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        self.0.look(key)
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        self.0.ready()
    }

    fn settle(&self) -> Option<&dyn Settle> {
        Some(self)
    }
}

impl Settle for Settling {
    fn has_work(&self, _: &Hold) -> bool {
        true
    }

    fn settle<'a>(&'a self, _: &'a Hold) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// The pair would hide that power, and the work would be undone although the call succeeds.
#[test]
fn a_store_whose_holds_are_transactions_is_refused() {
    let plain: Arc<dyn Backend> = Arc::new(Memory::new());
    let rows: Arc<dyn Backend> = Arc::new(Settling(Memory::new()));
    for (one, other, option) in [(&plain, &rows, "authority"), (&rows, &plain, "gate")] {
        let error = Paired::builder(one.clone(), other.clone()).build().expect_err("the pair was made");
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == option), "{error:?}");
        assert!(error.message().contains("way=row"), "{error}");
    }
    for (one, other, option) in [(&plain, &rows, "new"), (&rows, &plain, "old")] {
        let error = Migrating::builder(one.clone(), other.clone()).build().expect_err("the pair was made");
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == option), "{error:?}");
    }
}
