//! The requests of the contract. Both stores must agree to each of them.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Claim, Error, ErrorKind, Health, Hold, Identity, Keeps, LockKey, LockState, Periods, Profile,
    Queue, Released, Result, Standing, Validity,
};
use futures::future::{BoxFuture, Either, select};

use crate::in_order::{Both, Part, Undo};
use crate::migrating::Migrating;

/// For how long a loss in one store waits for the answers of the other.
const PATIENCE: Duration = Duration::from_millis(100);

impl Backend for Migrating {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        self.stores.identify(key)
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.stores.attempt(claim, queue))
    }

    fn expects_others(&self, key: &LockKey) {
        self.stores.first.expects_others(key);
        self.stores.second.expects_others(key);
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            let parts = match holds.iter().map(|hold| self.parts(hold)).collect::<Result<Vec<_>>>() {
                Ok(parts) => parts,
                Err(error) => return holds.iter().map(|_| Err(error.again())).collect(),
            };
            let in_old: Vec<_> = parts.iter().map(|Parts { old, .. }| &**old).collect();
            let in_new: Vec<_> = parts.iter().map(|Parts { new, .. }| new).collect();
            let asked = select(self.stores.first.renew(&in_old), self.stores.second.renew(&in_new));
            let (of_old, of_new) = match asked.await {
                Either::Left((of_old, new)) => {
                    let of_new = self.answers_beside(&of_old, new).await;
                    (of_old, of_new)
                }
                Either::Right((of_new, old)) => {
                    let of_old = self.answers_beside(&of_new, old).await;
                    (of_old, of_new)
                }
            };
            if of_old.len() != holds.len() || of_new.len() != holds.len() {
                let wrong = || Error::new(ErrorKind::Protocol, "a store did not answer for each hold");
                return holds.iter().map(|_| Err(wrong())).collect();
            }
            let answers = parts.into_iter().zip(of_old.into_iter().zip(of_new));
            answers.map(|(parts, (of_old, of_new))| self.standing(parts, of_old, of_new)).collect()
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, |store, hold| store.release(hold)))
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.stores.abandon(claim))
    }

    /// The holders of both stores. One that has the lock in both is one holder.
    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move {
            let (old, new) = futures::join!(self.stores.first.look(key), self.stores.second.look(key));
            let mut state = old.map_err(|error| self.stores.by_first(error))?;
            let new = new.map_err(|error| self.stores.by_second(error))?;
            for holder in new.holders {
                if holder.id.is_none() || !state.holders.iter().any(|known| known.id == holder.id) {
                    state.holders.push(holder);
                }
            }
            state.waiters = state.waiters.zip(new.waiters).map(|(old, new)| old + new);
            Ok(state)
        })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(self.stores.ready())
    }

    fn keeps(&self) -> Option<&dyn Keeps> {
        self.stores.first.keeps().and(self.stores.second.keeps()).map(|_| self as &dyn Keeps)
    }

    fn periods(&self) -> Option<&dyn Periods> {
        self.stores.first.periods().and(self.stores.second.periods()).map(|_| self as &dyn Periods)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stores.close())
    }
}

/// A hold, and its parts in both stores.
struct Parts {
    both: Arc<Both>,
    old: Arc<Hold>,
    new: Hold,
}

impl Migrating {
    fn parts(&self, hold: &Hold) -> Result<Parts> {
        let (both, new) = self.stores.parts(hold)?;
        Ok(Parts { old: both.held_first()?, both, new })
    }

    /// The answers of the other store to a renewal. A loss must not wait for a store that is silent: with sessions, the next
    /// owner is in at once.
    async fn answers_beside(
        &self,
        of_one: &[Result<Standing>],
        other: BoxFuture<'_, Vec<Result<Standing>>>,
    ) -> Vec<Result<Standing>> {
        if !of_one.iter().any(|answer| matches!(answer, Ok(Standing::Lost))) {
            return other.await;
        }
        let answers = self.stores.clock.timeout_at(self.stores.clock.now().after(PATIENCE), other).await;
        let silent = || of_one.iter().map(|_| Err(Error::outage("it did not answer in time"))).collect();
        answers.unwrap_or_else(silent)
    }

    /// What two answers to a renewal mean together. Nobody releases a lost hold, so what is left of it is freed here. But the
    /// parts of a hold that is being ended are left to its end, which would find them gone.
    fn standing(
        &self,
        Parts { both, old, new }: Parts,
        of_old: Result<Standing>,
        of_new: Result<Standing>,
    ) -> Result<Standing> {
        let is_lost = |answer: &Result<Standing>| matches!(answer, Ok(Standing::Lost));
        match (is_lost(&of_old), is_lost(&of_new)) {
            (false, false) => {}
            _ if both.is_ending() => return Ok(Standing::Lost),
            (true, _) => {
                self.stores.undo_later(&self.stores.second, Undo::Release(Arc::new(new)));
                return Ok(Standing::Lost);
            }
            (false, true) => {
                self.stores.undo_later(&self.stores.first, Undo::Release(old));
                return Ok(Standing::Lost);
            }
        }
        let of_old = of_old.map_err(|error| self.stores.by_first(error))?;
        let of_new = of_new.map_err(|error| self.stores.by_second(error))?;
        Ok(match (of_old, of_new) {
            (Standing::Renewed(old), Standing::Renewed(new)) => Standing::Renewed(earlier(old, new)),
            _ => Standing::Lost,
        })
    }

    /// Ends a hold in the new store, then in the old one: the last who comes is the first who goes. Both are asked in any
    /// case. It was held to the end only if both say so, and was lost if one of them does.
    pub(super) async fn end(
        &self,
        hold: &Hold,
        ending: impl for<'a> Fn(&'a dyn Backend, &'a Hold) -> BoxFuture<'a, Result<Released>> + Send,
    ) -> Result<Released> {
        let (both, in_new) = self.stores.parts(hold)?;
        let in_old = both.held_first()?;
        if both.has_ended() {
            return Ok(Released::NotOwner);
        }
        both.begin_end();
        let stores = &self.stores;
        let in_order = async {
            let mut new = Box::pin(both.end(Part::Second, || ending(&*stores.second, &in_new)));
            let old = both.end(Part::First, || ending(&*stores.first, &in_old));
            let by = stores.clock.now().after(stores.patience(hold.claim.ttl));
            match stores.clock.timeout_at(by, &mut new).await {
                Some(of_new) => (of_new, old.await),
                // A silent store must not keep the other one from being asked: the caller gives up after a while.
                None => futures::join!(new, old),
            }
        };
        let (of_new, of_old) = in_order.await;
        let of_new = of_new.map_err(|error| stores.by_second(error));
        let of_old = of_old.map_err(|error| stores.by_first(error));
        match (of_new, of_old) {
            (Ok(Released::Released), Ok(Released::Released)) => Ok(Released::Released),
            (Ok(_), Ok(_)) => Ok(Released::NotOwner),
            // The engine takes an error for a lease that lasted, and this one did not. So our thread frees the other part.
            (Ok(Released::NotOwner), Err(_)) => {
                self.stores.undo_later(&self.stores.first, Undo::Release(in_old));
                Ok(Released::NotOwner)
            }
            (Err(_), Ok(Released::NotOwner)) => {
                self.stores.undo_later(&self.stores.second, Undo::Release(Arc::new(in_new)));
                Ok(Released::NotOwner)
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }
}

/// The one that ends first.
fn earlier(one: Validity, other: Validity) -> Validity {
    if one.deadline() < other.deadline() { one } else { other }
}
