//! What the account may do in the store: each kind of call is tried, with keys of the doctor's own.

use std::num::NonZeroU32;
use std::time::Duration;

use dlock::{Error, ErrorKind, Lock, Mode, OncePer};
use dlock_contract::Profile;

use super::probe;
use crate::store::Store;

pub(super) const TAKE: &str = "take, renew and release a lock";

/// A kind of call, and its outcome.
type Tried = (&'static str, Result<(), Error>);

/// Tries all that the store offers. What it does not have at all is among its promises.
pub(super) async fn all(store: &Store, profile: &Profile) -> Vec<Tried> {
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
    let once_per = OncePer::new(Duration::from_millis(1));
    tried.push(("once_per", probe(store, "run").once_per(once_per).run(|_held| async {}).await.map(drop)));
    tried.push(("show a lock", probe(store, "show").holders().await.map(drop)));
    let list = store.registry.locks().backend(&store.backend).prefix("dlock-doctor:").limit(1);
    tried.push(("list locks", list.page().await.map(drop)));
    tried.push(("break a hold", break_own(store).await));
    tried
        .retain(|(_, outcome)| !matches!(outcome, Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. })));
    tried
}

async fn cycle(lock: Lock) -> Result<(), Error> {
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
