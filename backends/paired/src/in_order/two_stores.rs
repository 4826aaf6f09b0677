//! Refuses two members that are one store under two names. By addresses alone this cannot be seen: one server has many.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, Backend, Claim, Expiry, Key, LockKey, Profile, Queue, Result, TtlRange};
use dlock_store::background;

use crate::in_order::{InOrder, Undo};

/// How long both stores have to answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The ttl of the locks that are tried, if both stores can do it.
const TTL: Duration = Duration::from_secs(10);

impl InOrder {
    /// Takes a lock in the first store, and asks for it in the second store as another owner. If the second store
    /// grants it, these are two stores. If a store gives another answer, or none, the check says nothing.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid) if both are one store.
    pub(crate) async fn check_two_stores(self: &Arc<Self>, ttls: TtlRange) -> Result<()> {
        // Few names, because some stores keep a row for each name. So another program may try the same name just then, and one
        // lock that is taken in both stores proves nothing.
        let (name, mut taken) = (fastrand::u8(..), 0);
        // A namespace of its own for each kind of pair: some stores are locked in one way for each namespace.
        let side = |store: &dyn Backend| match store.profile() {
            Profile { expiry: Expiry::Session { .. }, kind, .. } => format!("{kind}-session"),
            Profile { kind, .. } => (*kind).to_owned(),
        };
        let namespace = format!("dlock-pair.{}.{}", side(&*self.first), side(&*self.second));
        for round in 0..4 {
            let key = LockKey::new(&namespace, Key::text("pair:").value(&name.wrapping_add(round)))?;
            match self.is_taken_in_both(key, near_ttl(ttls)).await? {
                Some(true) if taken == 1 => return Err(self.kind.one_store()),
                Some(true) => taken += 1,
                Some(false) => return Ok(()),
                None => {}
            }
        }
        Ok(())
    }

    /// Whether a lock that is taken in the first store is then taken in the second one too. `None`: another program holds it.
    async fn is_taken_in_both(self: &Arc<Self>, key: LockKey, ttl: Duration) -> Result<Option<bool>> {
        let claim = || Claim::new(key.clone(), ttl, "pair").map(Arc::new);
        let (ours, other) = (claim()?, claim()?);
        let stores = self.clone();
        let asked = async move {
            let asked = async {
                match stores.first.try_acquire(&ours, Queue::Leave).await {
                    Ok(Attempt::Acquired(_)) => {
                        let answer = stores.second.try_acquire(&other, Queue::Leave).await;
                        Some(matches!(answer, Ok(Attempt::Contended(_))))
                    }
                    Ok(_) => None,
                    Err(_) => Some(false),
                }
            };
            let by = stores.clock.now().after(ANSWER_TIME);
            let answer = stores.clock.timeout_at(by, asked).await.unwrap_or(Some(false));
            stores.undo_later(&stores.first, Undo::Abandon(ours));
            stores.undo_later(&stores.second, Undo::Abandon(other));
            answer
        };
        // On our thread, because some stores make a connection for each hold, which must not live on a caller's runtime.
        background()?.run(asked).await
    }
}

/// A ttl in this range, near [`TTL`].
fn near_ttl(ttls: TtlRange) -> Duration {
    let step = ttls.step.max(Duration::from_nanos(1));
    let near = TTL.clamp(ttls.min, ttls.max).as_nanos() / step.as_nanos() * step.as_nanos();
    Duration::from_nanos(u64::try_from(near).unwrap_or(u64::MAX))
}
