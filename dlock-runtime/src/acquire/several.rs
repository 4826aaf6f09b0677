//! The acquisition of one key, or of several keys: all or none.

use std::convert::identity;
use std::future::poll_fn;
use std::sync::Arc;

use dlock_contract::engine::KeyBuf;
use dlock_contract::{Error, LockKey, Result};
use dlock_store::engine::guarded;
use dlock_store::engine::simulation::planted;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use crate::acquire::batch::{BatchOutcome, acquire_batch};
use crate::acquire::context::Found;
use crate::acquire::of_this_process::Acquiring;
use crate::acquire::opening::OpensFirst;
use crate::acquire::request::Request;
use crate::acquire::single::acquire;
use crate::acquire::wait::wait_end;
use crate::guard::guard_set::{Guards, finish_all};
use crate::guard::held::Held;
use crate::guard::scope::{self, Enclosing};
use crate::site::Keys;

/// The most keys of one call. More are a mistake: each is a lock to hold, renew and release.
const MOST_KEYS: usize = 10_000;

/// Acquires one key, or several: sorted, without duplicates, all or none. Two callers that sort alike cannot wait for
/// each other.
pub(crate) fn acquire_all(request: Request, keys: Keys) -> Acquiring<Guards> {
    match keys {
        Keys::One(key) => acquire(request, &key, None, 0, Guards::one),
        Keys::Several(keys) => Acquiring::new(guarded(acquire_several(request, keys))),
    }
}

async fn acquire_several(request: Request, keys: Vec<KeyBuf>) -> Result<Guards> {
    let with_first_key = |error: Error| match keys.first() {
        Some(first) => error.with_key_or_hash(&first.0, request.options.sensitive),
        None => error,
    };
    let clock = request.context.shared().clock.clone();
    // One wait for all keys.
    let wait_ends = wait_end(clock.now(), request.options.wait.unwrap_or(request.context.defaults().wait));
    let store = match request.context.find(request.backend.as_deref()).map_err(with_first_key)? {
        Found::Open(store) => store,
        Found::Lazy(lazy) => {
            let Some(first) = keys.first() else { return Err(no_keys()) };
            let opens_first = OpensFirst::new(request.clone(), lazy, Some(wait_ends));
            Box::pin(opens_first.open(first)).await?.store
        }
    };
    if keys.len() > MOST_KEYS {
        let text =
            format!("one call takes {MOST_KEYS} keys at most, and this call has {}; use several calls", keys.len());
        return Err(with_first_key(Error::config("keys", text)).with_backend(&store.name));
    }
    if request.options.once_per.is_some() {
        // The first key would use up its period even if the next key is not granted.
        let text = "`once_per` counts the starts of one key; use one key instead of a list";
        return Err(with_first_key(Error::config("once_per", text)).with_backend(&store.name));
    }
    let namespace = request.context.defaults().namespace.clone();
    let mut by_lock = Vec::with_capacity(keys.len());
    for (written, key) in keys.into_iter().enumerate() {
        let identified = store.identify(&namespace, &key);
        let sensitive = request.options.sensitive;
        let named = |error: Error| error.with_key_or_hash(&key.0, sensitive).with_backend(&store.name);
        let (_, identity) = identified.map_err(named)?;
        by_lock.push((identity.into_lock(), written, key));
    }
    let (keys, as_written) = sorted(by_lock);
    // Collected once. Otherwise each key would look through all enclosing holds.
    let request = Request { enclosing: Some(Arc::new(Enclosing::of(&store))), ..request };
    let attempts = match acquire_batch(&request, &keys, wait_ends).await? {
        BatchOutcome::Won(guards) => return Ok(guards.handed_out(as_written)),
        BatchOutcome::OneByOne(attempts) => attempts,
    };
    let mut guards: Option<Guards> = None;
    // Each hold has one listener. Checking all holds after each further key would take quadratic time.
    let mut losses = FuturesUnordered::new();
    for key in keys {
        // Inside of the holds before. So an error names them, and a store may see which calls wait for each other.
        let mut next = within(guards.as_ref(), || acquire(request.clone(), &key, Some(wait_ends), attempts, identity));
        // The loss is polled first: if one hold is lost, the call has failed, whatever else arrives.
        let won = tokio::select! {
            biased;
            Some(loss) = losses.next(), if !losses.is_empty() => Err(loss),
            won = poll_fn(|cx| within(guards.as_ref(), || next.poll_unpin(cx))) => won,
        };
        match won {
            Ok(guard) => {
                let held = Held::clone(&guard);
                losses.push(async move { held.0.lost().await });
                guards = Some(Guards::with(guards, guard));
            }
            Err(error) => return Err(give_back(guards, error).await),
        }
    }
    let Some(guards) = guards else { return Err(no_keys()) };
    // A hold may have ended while the call waited for the next one, and a watch may report it too late.
    guards.confirm().await;
    match guards.check() {
        Ok(()) => Ok(guards.handed_out(as_written)),
        Err(_) if planted("several keys are not looked at again") => Ok(guards.handed_out(as_written)),
        Err(loss) => Err(give_back(Some(guards), loss).await),
    }
}

/// The keys in the order of their locks in the store, each lock once, because two keys may be one lock there. Also the
/// index of the lock of each key, in the order in which the keys were written.
fn sorted(mut by_lock: Vec<(LockKey, usize, KeyBuf)>) -> (Vec<KeyBuf>, Box<[usize]>) {
    if !planted("keys are taken as they are written") {
        by_lock.sort_by(|(one, ..), (other, ..)| one.as_str().cmp(other.as_str()));
    }
    let (mut keys, mut places, mut last) = (Vec::with_capacity(by_lock.len()), Vec::with_capacity(by_lock.len()), None);
    for (lock, written, key) in by_lock {
        if last.as_ref() != Some(&lock) {
            keys.push(key);
            last = Some(lock);
        }
        places.push((written, keys.len() - 1));
    }
    places.sort_unstable();
    (keys, places.into_iter().map(|(_, place)| place).collect())
}

/// Runs `work` inside of the locks that were won before.
fn within<T>(won: Option<&Guards>, work: impl FnOnce() -> T) -> T {
    match won {
        Some(guards) => scope::within(guards.holds(), work),
        None => work(),
    }
}

fn no_keys() -> Error {
    Error::config("keys", "the list of keys is empty, so nothing would be locked")
}

/// Releases the locks that were won. The caller hears why the call failed; a loss meanwhile does not change that.
async fn give_back(won: Option<Guards>, error: Error) -> Error {
    if let Some(guards) = won {
        let _ = finish_all(guards).await;
    }
    error
}

#[cfg(test)]
mod tests;
