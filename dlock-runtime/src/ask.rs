//! What a caller asks for: one lock, or several that are won all or none.

use std::borrow::Cow;
use std::future::ready;
use std::sync::Arc;

use dlock_contract::engine::{Home, KeyBuf, home};
use dlock_contract::{Error, Result};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use crate::guard::Held;
use crate::guards::{Guards, finish_all};
use crate::locker::{Prepared, Tried, acquire_together, acquire_until, deadline, prepare};
use crate::options::Options;
use crate::registry::Registry;
use crate::scope::{self, Enclosing};
use crate::sites::{Call, Keys, Place, Site};

/// What a caller asks for.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) registry: Registry,
    pub(crate) place: Place,
    pub(crate) options: Options,
    pub(crate) backend: Option<Cow<'static, str>>,
    /// Of a caller whose thread sleeps meanwhile.
    pub(crate) parked: Option<Box<Parked>>,
    /// Is it one of several keys, which are taken in one order, and of use only once all are there?
    pub(crate) list: Option<Arc<Enclosing>>,
}

/// More keys in one call are a mistake: each is a lock to be held, renewed and given back.
const MOST_KEYS: usize = 10_000;

impl Ask {
    pub(crate) const fn new(
        registry: Registry,
        place: Place,
        options: Options,
        backend: Option<Cow<'static, str>>,
    ) -> Self {
        Self { registry, place, options, backend, parked: None, list: None }
    }

    /// What an annotated function asks for in one call.
    pub(crate) fn of_site(site: &'static Site, call: &Call) -> Self {
        let registry = Registry::here();
        let said =
            Options { ttl: call.ttl.or(site.options.ttl), wait: call.wait.or(site.options.wait), ..site.options };
        let options = registry.tuned(site.name, said);
        let backend = call.backend.clone().or(site.backend.map(Into::into));
        Self::new(registry, Place::Site(site), options, backend)
    }

    /// The caller's thread, which is the present one, sleeps until there is an answer.
    pub(crate) fn parking(mut self) -> Self {
        self.parked = Some(Box::new(Parked { home: home(), trace: self.registry.trace(), waits: None }));
        self
    }
}

/// What only the thread of a caller knows that sleeps while ours asks for it.
#[derive(Clone)]
pub(crate) struct Parked {
    pub(crate) home: Option<Home>,
    pub(crate) trace: Option<String>,
    /// Tells that thread that others hold the lock, so that it may sleep for long.
    pub(crate) waits: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// Acquires one key, or several: sorted and without doubles, all or none. Two callers that sort alike cannot wait for
/// each other.
pub(crate) fn acquire_all(ask: Ask, keys: Keys) -> BoxFuture<'static, Result<Guards>> {
    match keys {
        Keys::One(key) => match prepare(ask, &key, None) {
            // A combinator, since an `async` block would keep the future twice.
            Ok(Prepared::Asks(acquisition)) => Box::pin(acquisition.run().map(|won| won.map(Guards::one))),
            Ok(Prepared::Joins(guard)) => Box::pin(ready(Ok(Guards::one(guard)))),
            Err(error) => Box::pin(ready(Err(error))),
        },
        Keys::Several(keys) => Box::pin(scope::inherit(acquire_several(ask, keys))),
    }
}

async fn acquire_several(ask: Ask, keys: Vec<KeyBuf>) -> Result<Guards> {
    let of_first = |error: Error| match keys.first() {
        Some(first) => error.with_key(&first.0),
        None => error,
    };
    let store = ask.registry.store(ask.backend.as_deref()).map_err(of_first)?;
    if keys.len() > MOST_KEYS {
        let text = format!(
            "one call takes {MOST_KEYS} keys at most, and these are {}: take them in several calls",
            keys.len()
        );
        return Err(of_first(Error::config("keys", text)).with_backend(&store.name));
    }
    if ask.options.once_per.is_some() {
        // The first of them would have spent its period where the next one is not to be had.
        let text = "once_per counts the starts under one key: ask for one key instead of a list";
        return Err(of_first(Error::config("once_per", text)).with_backend(&store.name));
    }
    let namespace = ask.registry.defaults().namespace.clone();
    // By the names that the store has for them: two keys may be one lock there.
    let mut named = Vec::with_capacity(keys.len());
    for key in keys {
        let name = store.key(&namespace, &key).map_err(|error| error.with_backend(&store.name))?;
        named.push((name, key));
    }
    named.sort_unstable_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
    named.dedup_by(|(one, _), (other, _)| one == other);
    let keys: Vec<_> = named.into_iter().map(|(_, key)| key).collect();
    // Looked for once: each of the keys would look through all that is held.
    let ask = Ask { list: Some(Arc::new(Enclosing::of(&store))), ..ask };
    let clock = &ask.registry.shared().clock;
    let wait = ask.options.wait.unwrap_or(ask.registry.defaults().wait);
    // One wait for all of them.
    let deadline = deadline(clock.now(), wait);
    let attempts = match acquire_together(&ask, &keys, deadline).await? {
        Tried::Won(guards) => return Ok(guards.handed_out()),
        Tried::OneByOne(attempts) => attempts,
    };
    let mut guards: Option<Guards> = None;
    // Each listens once: a look at all of them for each next key would be very many looks.
    let mut losses = FuturesUnordered::new();
    for key in keys {
        // Inside of the one before: the same hold twice would wait for itself.
        let outer = Guards::innermost_of(guards.as_ref());
        let next = scope::within(outer.clone(), || acquire_until(ask.clone(), &key, Some(deadline), attempts));
        // First the loss: a list of which one is gone is not had, whatever comes with it.
        let won = tokio::select! {
            biased;
            Some(loss) = losses.next(), if !losses.is_empty() => Err(loss),
            won = scope::inside(outer, next) => won,
        };
        match won {
            Ok(guard) => {
                let held = Held::clone(&guard);
                losses.push(async move { held.lost().await });
                guards = Some(Guards::with(guards, guard));
            }
            Err(error) => return Err(give_back(guards, error).await),
        }
    }
    let Some(guards) = guards else {
        return Err(Error::config("keys", "there is no key in the list, so nothing would be locked"));
    };
    // A loss at the last moment, after the select above.
    match guards.check() {
        Ok(()) => Ok(guards.handed_out()),
        Err(loss) => Err(give_back(Some(guards), loss).await),
    }
}

/// The caller hears why there is no lock; that one of those that were won ended meanwhile changes nothing.
async fn give_back(won: Option<Guards>, error: Error) -> Error {
    if let Some(guards) = won {
        let _ = finish_all(guards).await;
    }
    error
}

#[cfg(test)]
mod tests;
