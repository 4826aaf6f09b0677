//! The conformance suite over pairs and migrations of real stores.

mod members;

use std::any::Any;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, LockKey, Result};
use dlock_paired::{GateDown, Migrating, Paired};
use dlock_store::Clock;
use dlock_testkit::conformance::{self, Served};
use dlock_testkit::servers::Redis;
use dlock_testkit::{Mode, Proxy};
use futures::future::{BoxFuture, join_all};

use members::{file, memory, mysql, of_redis, postgres, redis};

fn main() -> ExitCode {
    let stores: [(&str, conformance::Start); 2] = [
        ("redis+postgres", redis_or_postgres),
        ("sqlite->redis", || two("sqlite->redis", [migration; 2], file()?, redis()?)),
    ];
    let thorough: [(&str, conformance::Start); 2] = [
        ("redis+mysql", || two("redis+mysql", [pair, pair_or_authority], redis()?, mysql()?)),
        ("memory+sqlite", || two("memory+sqlite", [pair, pair_or_authority], memory(), file()?)),
    ];
    conformance::main_and(&stores, &thorough)
}

type Make = fn([Arc<dyn Backend>; 2], &Clock) -> Result<Arc<dyn Backend>>;

fn pair([gate, authority]: [Arc<dyn Backend>; 2], clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Paired::builder(gate, authority).clock(clock).build()?))
}

fn pair_or_authority([gate, authority]: [Arc<dyn Backend>; 2], clock: &Clock) -> Result<Arc<dyn Backend>> {
    let pair = Paired::builder(gate, authority).gate_down(GateDown::Authority).clock(clock);
    Ok(Arc::new(pair.build()?))
}

fn migration([old, new]: [Arc<dyn Backend>; 2], clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Migrating::builder(old, new).clock(clock).build()?))
}

fn two(
    name: &'static str,
    make: [Make; 2],
    first: Box<dyn Store>,
    second: Box<dyn Store>,
) -> Result<Box<dyn Store>, String> {
    Ok(Box::new(Two { name, make, members: [first, second], passed_over: None }))
}

fn redis_or_postgres() -> Result<Box<dyn Store>, String> {
    let gate = Arc::new(Served::start(Redis::default())?);
    let passed_over = Some(PassedOver { gate: gate.clone(), cut: Mutex::default() });
    let members = [of_redis(gate), postgres()?];
    Ok(Box::new(Two { name: "redis+postgres", make: [pair_or_authority, pair], members, passed_over }))
}

/// Two stores. What happens to one of them happens to both.
struct Two {
    name: &'static str,
    /// Of the clients, and of clients with other settings.
    make: [Make; 2],
    members: [Box<dyn Store>; 2],
    passed_over: Option<PassedOver>,
}

/// A gate that is passed over while it is down.
struct PassedOver {
    gate: Arc<Served>,
    /// The ways to it that were cut.
    cut: Mutex<Vec<Proxy>>,
}

impl Store for Two {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let [first, second] = &self.members;
            (self.make[0])([first.open(clock.clone()).await?, second.open(clock.clone()).await?], &clock)
        })
    }

    /// Those of the pair, and those of its members.
    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        Some(Box::pin(async move {
            let open = async |member: &dyn Store| match member.open_with_other_settings(clock.clone()) {
                Some(opening) => opening.await,
                None => member.open(clock.clone()).await,
            };
            let [first, second] = &self.members;
            (self.make[1])([open(&**first).await?, open(&**second).await?], &clock)
        }))
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move {
            let found = join_all(self.members.iter().map(|member| member.leftovers(key))).await;
            Ok(found.into_iter().collect::<Result<Vec<_>>>()?.concat())
        })
    }

    /// From the last to the first, as a release: otherwise a waiter comes through the first and finds the last one taken.
    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let evicting: Option<Vec<_>> = self.members.iter().rev().map(|member| member.evict(key)).collect();
        let evicting = evicting?;
        Some(Box::pin(async move {
            for member in evicting {
                member.await?;
            }
            Ok(())
        }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        let cut: Option<Vec<_>> = self.members.iter().map(|member| member.outage(outage)).collect();
        let cut = cut?;
        Some(Box::pin(async move {
            let cut = join_all(cut).await.into_iter().collect::<Result<Vec<_>>>()?;
            Ok(Box::new(cut) as Box<dyn Any + Send>)
        }))
    }

    /// Clients that do not reach the gate.
    fn open_to_a_part(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let PassedOver { gate, cut } = self.passed_over.as_ref()?;
        Some(Box::pin(async move {
            let (proxy, url) = gate.another_way()?;
            let gate: Arc<dyn Backend> = Arc::new(dlock_redis::Redis::connect(&url, &clock).await?);
            let client = (self.make[0])([gate, self.members[1].open(clock.clone()).await?], &clock)?;
            proxy.set(Mode::Refuse);
            cut.lock().unwrap_or_else(PoisonError::into_inner).push(proxy);
            Ok(client)
        }))
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        let restarted: Option<Vec<_>> = self.members.iter().map(|member| member.restart()).collect();
        let restarted = restarted?;
        Some(Box::pin(async move { join_all(restarted).await.into_iter().collect() }))
    }

    fn in_process(&self) -> bool {
        self.members.iter().any(|member| member.in_process())
    }
}
