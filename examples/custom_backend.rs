//! A backend from outside: the contract in under two hundred lines, and the conformance suite that says whether it holds.
//!
//! The store is a table behind a mutex. Every request is one function on it. `docs/ADDING_A_BACKEND.md` explains each step.
//!
//! ```sh
//! cargo run --example custom_backend
//! ```

#![expect(clippy::print_stdout, reason = "the report is what it is for")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_conformance::{Report, Store, run};
use dlock_contract::{
    Attempt, Backend, BootInstant, Claim, Fencing, Health, Hold, Holder, LockKey, LockState, Note, Owner, Profile,
    Queue, Released, Result, Standing, TtlRange, Validity, Wake, WakeStyle,
};
use dlock_store::Clock;
use futures::future::BoxFuture;

/// The record of one held lock. `ends` is by the store's clock.
struct Row {
    owner: Owner,
    ends: BootInstant,
    token: u64,
    note: Note,
}

#[derive(Default)]
struct Table {
    rows: HashMap<LockKey, Row>,
    /// One counter for all locks. It outlives them: a token that was given is never given again.
    fence: u64,
}

impl Table {
    /// The row, if its lease runs and it is this owner's.
    fn own(&mut self, claim: &Claim, now: BootInstant) -> Option<&mut Row> {
        self.rows.get_mut(&claim.key).filter(|row| row.owner == claim.owner && row.ends > now)
    }
}

/// A client of the table. Clones are other clients.
#[derive(Clone)]
struct TableLock {
    table: Arc<Mutex<Table>>,
    clock: Clock,
    profile: Arc<Profile>,
}

impl TableLock {
    fn new() -> Self {
        let ttl = TtlRange::new(Duration::from_millis(10), Duration::from_secs(86_400));
        let profile = Profile::new("table", ttl.in_steps_of(Duration::from_millis(1))).with(|table| {
            table.fencing = Fencing::MonotonicUnlessFailover;
            table.wake = WakeStyle::Poll { from: Duration::from_millis(5), to: Duration::from_millis(100) };
        });
        Self { table: Arc::default(), clock: Clock::system(), profile: Arc::new(profile) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for TableLock {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, _: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            // Before the request leaves: a slow reply must not make us believe for longer.
            let from = self.clock.now();
            let table = &mut *self.table();
            let now = self.clock.now();
            let ends = now.after(claim.ttl);
            let token = match table.rows.get_mut(&claim.key) {
                Some(row) if row.ends > now && row.owner != claim.owner => {
                    return Ok(Attempt::Contended(Wake::poll().lease_left(row.ends.since(now))));
                }
                // The reply to an earlier attempt was lost: the same hold, armed anew.
                Some(row) if row.ends > now => {
                    row.ends = ends;
                    row.token
                }
                _ => {
                    table.fence += 1;
                    let row = Row { owner: claim.owner, ends, token: table.fence, note: claim.note.clone() };
                    table.rows.insert(claim.key.clone(), row);
                    table.fence
                }
            };
            Ok(Attempt::Acquired(Hold::new(claim.clone(), token, Validity::new(from, claim.ttl))?))
        })
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            let from = self.clock.now();
            let (mut table, now) = (self.table(), self.clock.now());
            let mut renew = |claim: &Claim| match table.own(claim, now) {
                Some(row) => {
                    row.ends = now.after(claim.ttl);
                    Standing::Renewed(Validity::new(from, claim.ttl))
                }
                None => Standing::Lost,
            };
            holds.iter().map(|hold| Ok(renew(&hold.claim))).collect()
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let (mut table, now) = (self.table(), self.clock.now());
            if table.own(&hold.claim, now).is_none() {
                return Ok(Released::NotOwner);
            }
            table.rows.remove(&hold.claim.key);
            Ok(Released::Released)
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (mut table, now) = (self.table(), self.clock.now());
            if table.own(claim, now).is_some() {
                table.rows.remove(&claim.key);
            }
            Ok(())
        })
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move {
            let (table, now) = (self.table(), self.clock.now());
            let held = table.rows.get(key).filter(|row| row.ends > now);
            let holder = held
                .map(|row| Holder::new(row.note.clone()).with(|holder| holder.lease_left = Some(row.ends.since(now))));
            Ok(LockState::new(holder.into_iter().collect(), None))
        })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(async { Ok(Health::new()) })
    }
}

/// How the suite reaches the table: as another client, and behind the backend's back.
struct UnderTest(TableLock);

impl Store for UnderTest {
    fn name(&self) -> String {
        "table".into()
    }

    fn open(&self, _: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        Box::pin(async { Ok(Arc::new(self.0.clone()) as Arc<dyn Backend>) })
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async { Ok(self.0.table().rows.get(key).map(|row| row.note.to_string()).into_iter().collect()) })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async {
            self.0.table().rows.remove(key);
            Ok(())
        }))
    }

    fn in_process(&self) -> bool {
        true
    }
}

#[tokio::main]
async fn main() {
    let report = run(&UnderTest(TableLock::new())).await;
    println!("{}", Report::table(std::slice::from_ref(&report)));
    assert!(report.is_clean(), "the backend does not keep the contract");
}
