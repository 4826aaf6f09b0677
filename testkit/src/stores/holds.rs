//! Claims and holds, as the tests of all stores use them. Each function panics at the first surprise.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, Backend, Claim, Hold, Key, LockKey, Mode, Queue, Signal, Standing, Wake};
use dlock_store::Clock;
use tokio::task::JoinHandle;

/// The site in the note of each claim of these tests.
pub const SITE: &str = "the_tests";

/// A key of one value, in the namespace `test`.
pub fn key(text: &str) -> LockKey {
    LockKey::new("test", Key::new().value(text)).unwrap()
}

/// A fresh owner's claim on the exclusive lock of [`key`].
pub fn claim(text: &str, ttl: Duration) -> Arc<Claim> {
    claim_on(&key(text), ttl, |_| ())
}

/// The same in another mode.
pub fn claim_in(text: &str, mode: Mode, ttl: Duration) -> Arc<Claim> {
    claim_on(&key(text), ttl, |claim| claim.mode = mode)
}

/// A fresh owner's claim. It is on an exclusive lock, and differs in what `change` sets.
pub fn claim_on(key: &LockKey, ttl: Duration, change: impl FnOnce(&mut Claim)) -> Arc<Claim> {
    let mut claim = Claim::new(key.clone(), ttl, SITE).unwrap();
    change(&mut claim);
    Arc::new(claim)
}

/// The name of an exclusive lock in Redis. The braces make a cluster keep all keys of one lock together.
pub fn name_in_redis(key: &LockKey) -> String {
    key.as_str().replacen("dl1:", "dl1:{", 1) + "}"
}

/// Takes a lock that must be free.
pub async fn take(store: &(impl Backend + ?Sized), claim: &Arc<Claim>) -> Hold {
    match store.try_acquire(claim, Queue::Leave).await.unwrap() {
        Attempt::Acquired(hold) => hold,
        Attempt::Contended(_) => panic!("the lock is held"),
        Attempt::AlreadyRun => panic!("a claim without a period"),
    }
}

/// Takes a lock that must be free, over one client of a store. The other client is refused and sees the holder, and the hold can
/// be renewed.
pub async fn take_against(one: &impl Backend, other: &impl Backend, claim: &Arc<Claim>) -> Hold {
    let hold = take(one, claim).await;
    let refused = other.try_acquire(&claim_on(&claim.key, claim.ttl, |_| ()), Queue::Leave).await.unwrap();
    assert!(matches!(refused, Attempt::Contended(_)), "{}: {refused:?}", claim.key);
    let state = other.look(&claim.key).await.unwrap();
    assert_eq!((state.note(), state.holders[0].token), (Some(&claim.note), Some(token(&hold))), "{}", claim.key);
    assert!(matches!(confirm(one, &hold).await, Standing::Renewed(_)), "{}", claim.key);
    hold
}

/// Renews one hold.
pub async fn confirm(store: &impl Backend, hold: &Hold) -> Standing {
    store.renew(&[hold]).await.remove(0).unwrap()
}

/// The fencing token of a hold.
pub fn token(hold: &Hold) -> u64 {
    hold.token.unwrap().get()
}

/// Waits for tasks that return the tokens of their holds, and fails if a token was given twice.
pub async fn assert_all_different(tasks: Vec<JoinHandle<Vec<u64>>>, count: usize) {
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.extend(task.await.unwrap());
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), count, "a token was given twice");
}

/// A caller that waits for a minute.
pub fn until() -> Queue {
    Queue::until(Clock::system().now().after(Duration::from_secs(60)))
}

/// Asks for a lock that is held, and waits for it from now on.
pub async fn stand(store: &(impl Backend + ?Sized), claim: &Arc<Claim>) -> Wake {
    match store.try_acquire(claim, until()).await.unwrap() {
        Attempt::Contended(wake) => wake,
        _ => panic!("no contention"),
    }
}

/// Waits as the engine does.
pub async fn wait(store: &impl Backend, claim: &Arc<Claim>, limit: Duration) -> Hold {
    let clock = Clock::system();
    let end = clock.now().after(limit);
    loop {
        let mut wake = match store.try_acquire(claim, until()).await.unwrap() {
            Attempt::Acquired(hold) => return hold,
            Attempt::Contended(wake) => wake,
            Attempt::AlreadyRun => panic!("already run"),
        };
        assert!(clock.now() < end, "waited too long");
        let again = wake.ask_by.unwrap_or(clock.now()).max(clock.now().after(Duration::from_millis(1)));
        match &mut wake.signal {
            None => clock.sleep_until(again).await,
            Some(signal) => {
                if let Some(Ok(Signal::Granted(hold))) = clock.timeout_at(again, signal).await {
                    return hold;
                }
            }
        }
    }
}
