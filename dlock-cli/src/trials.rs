//! Trials of each kind of call, with keys of the doctor's own. They show which rights the account has in the store.

use std::num::NonZeroU32;
use std::time::Duration;

use dlock::{Error, ErrorKind, Key, Lock, Mode, Profile, Wait};

use crate::store::Store;

pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) const TAKE: &str = "take, renew and release a lock";

/// A kind of call, and its outcome.
type Tried = (&'static str, Result<(), Error>);

/// Tries each kind of call that the store offers; `once_per` was tried before. The promises list the kinds that it does not offer.
pub(crate) async fn all(store: &Store, profile: &Profile, once_per: Result<(), Error>) -> Vec<Tried> {
    let take = async {
        let guard = probe(store, "take").acquire().await?;
        guard.confirm().await?;
        guard.release().await
    };
    let mut tried = vec![(TAKE, take.await)];
    let one = NonZeroU32::MIN;
    let offers = [
        (profile.read_write, "read", probe(store, "read").mode(Mode::Read)),
        (profile.read_write, "write", probe(store, "read").mode(Mode::Write)),
        (profile.permits, "permits", probe(store, "permits").mode(Mode::Permits(one))),
        (profile.fair, "fair", probe(store, "fair").fair(true)),
    ];
    for (what, lock) in offers.into_iter().filter_map(|(offered, what, lock)| offered.then_some((what, lock))) {
        tried.push((what, cycle(lock).await));
    }
    tried.push(("once_per", once_per));
    tried.push(("show a lock", probe(store, "show").holders().await.map(drop)));
    let list = store.registry.locks().backend(&store.backend).prefix("dlock-doctor:").limit(1);
    tried.push(("list locks", list.page().await.map(drop)));
    tried.push(("break a hold", break_own(store).await));
    tried
        .retain(|(_, outcome)| !matches!(outcome, Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. })));
    tried
}

/// A lock of the doctor's own.
pub(crate) fn probe(store: &Store, part: &str) -> Lock {
    // Two doctors do not wait for each other.
    let key = Key::text("dlock-doctor:").value(part).and_text(":").value(&std::process::id());
    store.registry.lock(key).backend(&store.backend).name("dlock-doctor").ttl(TTL).wait(Wait::None)
}

pub(crate) async fn cycle(lock: Lock) -> Result<(), Error> {
    lock.acquire().await?.release().await
}

async fn break_own(store: &Store) -> Result<(), Error> {
    let probe = || probe(store, "break");
    let guard = probe().acquire().await?;
    let own = probe().holders().await.map(|state| state.holders.first().and_then(|holder| holder.id));
    let broken = match own {
        Ok(Some(own)) => probe().break_hold(own).by("dlock doctor").because("tries whether it may").await.map(drop),
        other => other.map(drop),
    };
    // It fails if the break has done its work.
    let _ = guard.release().await;
    broken
}
