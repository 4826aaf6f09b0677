//! The requests of the contract. Each goes to both stores, and both answers count.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Claim, Error, ErrorKind, Health, Hold, Identity, Keeps, LockKey, LockState, Periods, Profile,
    Queue, Released, Result, Standing, Validity,
};
use futures::future::{BoxFuture, Either, select};

use crate::in_order::{HoldSession, Side, Undo};
use crate::migrating::Migrating;

/// How long a loss in one store is held back for the answers of the other.
const LOSS_TIMEOUT: Duration = Duration::from_millis(100);

impl Backend for Migrating {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        self.stores.host()
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
                    let of_new = self.answers_of_other(&of_old, new).await;
                    (of_old, of_new)
                }
                Either::Right((of_new, old)) => {
                    let of_old = self.answers_of_other(&of_new, old).await;
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

    /// The holders of both stores. A hold that exists in both stores is listed once.
    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move {
            let (old, new) = futures::join!(self.stores.first.look(key), self.stores.second.look(key));
            let mut state = old.map_err(|error| self.stores.error_of_first(error))?;
            let new = new.map_err(|error| self.stores.error_of_second(error))?;
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

    fn admits<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.stores.admits(key))
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
    session: Arc<HoldSession>,
    old: Arc<Hold>,
    new: Hold,
}

impl Migrating {
    fn parts(&self, hold: &Hold) -> Result<Parts> {
        let (session, new) = self.stores.parts(hold)?;
        Ok(Parts { old: session.held_first()?, session, new })
    }

    /// The answers of the other store to a renewal. If a hold is lost in one store, a silent other store must not delay the
    /// report: where locks live in sessions, the next owner may hold the lock already.
    async fn answers_of_other(
        &self,
        of_one: &[Result<Standing>],
        other: BoxFuture<'_, Vec<Result<Standing>>>,
    ) -> Vec<Result<Standing>> {
        if !of_one.iter().any(|answer| matches!(answer, Ok(Standing::Lost))) {
            return other.await;
        }
        let answers = self.stores.clock.timeout_at(self.stores.clock.now().after(LOSS_TIMEOUT), other).await;
        let silent = || of_one.iter().map(|_| Err(Error::outage("it did not answer in time"))).collect();
        answers.unwrap_or_else(silent)
    }

    /// Combines the answers of both stores to a renewal. Nobody releases a lost hold, so this frees its other half. But the
    /// halves of a hold that is being ended are left to its end, which would not find them.
    fn standing(
        &self,
        Parts { session, old, new }: Parts,
        of_old: Result<Standing>,
        of_new: Result<Standing>,
    ) -> Result<Standing> {
        let is_lost = |answer: &Result<Standing>| matches!(answer, Ok(Standing::Lost));
        match (is_lost(&of_old), is_lost(&of_new)) {
            (false, false) => {}
            _ if session.is_ending() => return Ok(Standing::Lost),
            (true, _) => {
                self.stores.undo_later(&self.stores.second, Undo::Release(Arc::new(new)));
                return Ok(Standing::Lost);
            }
            (false, true) => {
                self.stores.undo_later(&self.stores.first, Undo::Release(old));
                return Ok(Standing::Lost);
            }
        }
        let of_old = of_old.map_err(|error| self.stores.error_of_first(error))?;
        let of_new = of_new.map_err(|error| self.stores.error_of_second(error))?;
        Ok(match (of_old, of_new) {
            (Standing::Renewed(old), Standing::Renewed(new)) => Standing::Renewed(earlier(old, new)),
            _ => Standing::Lost,
        })
    }

    /// Ends a hold in the new store, then in the old one: the reverse of the order in which it was acquired. Both stores are
    /// always asked. The lock was held to the end only if both confirm it, and was lost if one of them reports it.
    pub(super) async fn end(
        &self,
        hold: &Hold,
        ending: impl for<'a> Fn(&'a dyn Backend, &'a Hold) -> BoxFuture<'a, Result<Released>> + Send,
    ) -> Result<Released> {
        let (session, in_new) = self.stores.parts(hold)?;
        let in_old = session.held_first()?;
        if session.has_ended() {
            return Ok(Released::NotOwner);
        }
        session.begin_end();
        let stores = &self.stores;
        let in_order = async {
            let mut new = Box::pin(session.end(Side::Second, || ending(&*stores.second, &in_new)));
            let old = session.end(Side::First, || ending(&*stores.first, &in_old));
            let by = stores.clock.now().after(stores.first_timeout(hold.claim.ttl));
            match stores.clock.timeout_at(by, &mut new).await {
                Some(of_new) => (of_new, old.await),
                // Ask the old store too, because the caller gives up after a while.
                None => futures::join!(new, old),
            }
        };
        let (of_new, of_old) = in_order.await;
        let of_new = of_new.map_err(|error| stores.error_of_second(error));
        let of_old = of_old.map_err(|error| stores.error_of_first(error));
        match (of_new, of_old) {
            (Ok(Released::Released), Ok(Released::Released)) => Ok(Released::Released),
            (Ok(_), Ok(_)) => Ok(Released::NotOwner),
            // An error would mean to the engine that the lock may still have been held to the end, and it was not. So our
            // thread frees the other half, and the answer is `NotOwner`.
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

/// The validity that ends first.
fn earlier(one: Validity, other: Validity) -> Validity {
    if one.deadline() < other.deadline() { one } else { other }
}
