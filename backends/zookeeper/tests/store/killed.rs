//! A process that holds in each mode is killed, and one that waits.

use std::time::Duration;

use dlock::{Guard, Key, LockKey, Mode, Registry, Wait};
use dlock_contract::{Backend, Signal};
use dlock_testkit::child::{Child, role};
use dlock_testkit::holds::{self, claim_on, stand, token};
use dlock_testkit::wait_until;
use futures::future::join_all;

use crate::kit::{process, shared};

const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const NAMESPACE: &str = "killed";

/// The servers of a child, if they are not the shared one.
pub(crate) const URL: &str = "URL";

/// The lock that the child holds, and its waiter.
fn modes() -> [(Mode, Mode); 3] {
    [(Mode::Read, Mode::Write), (Mode::Write, Mode::Read), (Mode::permits(1), Mode::permits(1))]
}

pub(crate) fn key(at: usize, id: u64) -> Key {
    Key::new().value(&at).and_text(":").value(&id)
}

async fn take(registry: &Registry, at: usize, mode: Mode, id: u64) -> Guard {
    let lock = registry.lock(key(at, id)).backend("main").mode(mode).ttl(Duration::from_secs(3));
    lock.wait(Wait::UpTo(PATIENCE)).acquire().await.unwrap()
}

async fn registry() -> Registry {
    let registry = Registry::new();
    registry.configure(|defaults| defaults.namespace = NAMESPACE.into()).unwrap();
    registry.connect("main", &std::env::var(URL).unwrap_or_else(|_| shared())).await.unwrap();
    registry
}

pub(crate) fn child() {
    let Some(role) = role() else { return };
    let id = std::env::var("ID").unwrap().parse().unwrap();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let registry = registry().await;
        if role == "waiter" {
            let _guard = take(&registry, 0, Mode::Exclusive, id).await;
            panic!("the lock was granted while its holder lived");
        }
        let guards = join_all((0..).zip(modes()).map(|(at, (mode, _))| take(&registry, at, mode, id))).await;
        let tokens: Vec<_> = guards.iter().map(|guard| guard.fence().unwrap().get().to_string()).collect();
        println!("held {}", tokens.join(" "));
        std::future::pending().await
    })
}

#[tokio::test]
async fn each_mode_goes_on_after_its_holder_was_killed() {
    let id = fastrand::u64(..);
    let (registry, store) = (registry().await, process().await);
    let mut child = Child::spawn("holder", &[("ID", &id.to_string())]).unwrap();
    let tokens = child.wait_line("held ", PATIENCE).unwrap();
    let mut waiting = Box::pin(join_all((0..).zip(modes()).map(|(at, (_, next))| take(&registry, at, next, id))));
    let in_line = wait_until("the waiters", async || {
        let keys = (0..3).map(|at| LockKey::new(NAMESPACE, key(at, id)).unwrap());
        let seen = join_all(keys.map(async |key| store.look(&key).await.unwrap().waiters)).await;
        seen.iter().all(|waiters| *waiters == Some(1))
    });
    tokio::select! {
        _ = waiting.as_mut() => panic!("a lock was granted while its holder lived"),
        done = in_line => done.unwrap(),
    }
    child.kill9().unwrap();
    let guards = waiting.await;
    for (guard, before) in guards.iter().zip(tokens.split(' ')) {
        assert!(guard.fence().unwrap().get() > before.parse().unwrap());
    }
    assert_eq!(guards[2].slot(), Some(0));
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_killed_waiter_lets_nobody_in_behind_a_living_holder() {
    let id = fastrand::u64(..);
    let key = LockKey::new(NAMESPACE, key(0, id)).unwrap();
    let (one, last) = (process().await, process().await);
    let claim = || claim_on(&key, Duration::from_secs(30), |_| ());
    let waiters = async |wanted| {
        let seen = wait_until("the waiters", async || one.look(&key).await.unwrap().waiters == Some(wanted));
        seen.await.unwrap();
    };
    let hold = holds::take(&one, &claim()).await;
    let mut child = Child::spawn("waiter", &[("ID", &id.to_string())]).unwrap();
    waiters(1).await;
    let waiter = claim();
    let mut signal = stand(&last, &waiter).await.signal.unwrap();
    waiters(2).await;
    child.kill9().unwrap();
    // Its session has ended.
    waiters(1).await;
    let early = tokio::time::timeout(Duration::from_millis(300), signal.as_mut()).await;
    assert!(early.is_err(), "a waiter came in behind a living holder");
    one.release(&hold).await.unwrap();
    let Signal::Granted(next) = signal.await.unwrap() else { panic!("no grant") };
    assert!(token(&next) > token(&hold));
    last.release(&next).await.unwrap();
}
