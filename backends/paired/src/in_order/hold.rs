//! A hold that lives in two stores.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dlock_contract::{Error, ErrorKind, Hold, Released, Result, Session};
use futures::FutureExt;
use futures::future::{BoxFuture, select};

use crate::in_order::first_hold::FirstHold;
use crate::in_order::{InOrder, PairKind};

/// The session of a hold: the locks in both stores.
#[derive(Debug)]
pub(crate) struct HoldSession {
    kind: PairKind,
    first: Mutex<FirstHold>,
    /// The hold in the second store.
    second: Hold,
    /// Whether its end has begun.
    is_ending: AtomicBool,
    /// If both stores decide: whether the release in the first store was confirmed, and that in the second.
    ended: [AtomicBool; 2],
}

/// One of the two stores of a hold.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    First,
    Second,
}

impl HoldSession {
    pub(super) fn new(kind: PairKind, first: FirstHold, second: Hold) -> Self {
        Self { kind, first: Mutex::new(first), second, is_ending: AtomicBool::new(false), ended: Default::default() }
    }

    pub(crate) fn first(&self) -> FirstHold {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that nothing is left in the first store, and returns what was there.
    pub(crate) fn forget_first(&self) -> FirstHold {
        std::mem::replace(&mut self.first.lock().unwrap_or_else(PoisonError::into_inner), FirstHold::Nothing)
    }

    /// From now on a part that is not found may have been freed by its own end.
    pub(crate) fn begin_end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Whether both parts have ended. Then nobody owns the hold.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.iter().all(|ended| ended.load(Ordering::Acquire))
    }

    /// Ends one part of the hold, unless its end is confirmed: then its store no longer knows it, and would answer
    /// `NotOwner`. The request leaves when this is polled.
    pub(crate) async fn end<'a>(
        &self,
        part: Side,
        ending: impl FnOnce() -> BoxFuture<'a, Result<Released>>,
    ) -> Result<Released> {
        if self.ended[part as usize].load(Ordering::Acquire) {
            return Ok(Released::Released);
        }
        let released = ending().await?;
        if released == Released::Released {
            self.ended[part as usize].store(true, Ordering::Release);
        }
        Ok(released)
    }

    /// The hold in the first store, if both stores decide.
    pub(crate) fn held_first(&self) -> Result<Arc<Hold>> {
        match self.first() {
            FirstHold::Held(hold) => Ok(hold),
            FirstHold::Unknown | FirstHold::Nothing => {
                Err(Error::new(ErrorKind::Internal, "a hold of a migration has no hold in the old store"))
            }
        }
    }

    fn ended_first(&self) -> Option<BoxFuture<'static, ()>> {
        match self.first() {
            FirstHold::Held(hold) => hold.session.as_ref()?.ended(),
            FirstHold::Unknown | FirstHold::Nothing => None,
        }
    }
}

impl Session for HoldSession {
    /// The authority's group. If both stores decide, there are two groups, and one number cannot name both.
    fn group(&self) -> Option<u64> {
        self.second.group().filter(|_| self.kind == PairKind::Gate)
    }

    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        let second = self.second.session.as_ref().and_then(|session| session.ended());
        let first = if self.kind == PairKind::Gate { None } else { self.ended_first() };
        match (first, second) {
            (Some(first), Some(second)) => Some(Box::pin(select(first, second).map(drop))),
            (first, second) => first.or(second),
        }
    }
}

impl InOrder {
    /// The parts of a hold: its session, and the hold as the second store knows it.
    pub(crate) fn parts(&self, hold: &Hold) -> Result<(Arc<HoldSession>, Hold)> {
        let session = hold.shared_session::<HoldSession>();
        let session =
            session.ok_or_else(|| Error::new(ErrorKind::Internal, "the hold is not one of a pair of stores"))?;
        let second = session.second.for_claim(self.for_second(&hold.claim));
        Ok((session, second))
    }
}
