//! A hold that lives in two stores.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dlock_contract::{Error, ErrorKind, Hold, Released, Result, Session};
use futures::FutureExt;
use futures::future::{BoxFuture, select};

use crate::in_order::first_part::FirstPart;
use crate::in_order::{InOrder, Kind};

/// The session of a hold: the locks in both stores.
#[derive(Debug)]
pub(crate) struct Both {
    kind: Kind,
    first: Mutex<FirstPart>,
    /// As the second store gave it.
    second: Hold,
    /// Whether its end has begun.
    is_ending: AtomicBool,
    /// Whether a release of the first part was confirmed, and of the second, where both stores decide.
    ended: [AtomicBool; 2],
}

/// One of the two parts of a hold.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    First,
    Second,
}

impl Both {
    pub(super) fn new(kind: Kind, first: FirstPart, second: Hold) -> Self {
        Self { kind, first: Mutex::new(first), second, is_ending: AtomicBool::new(false), ended: Default::default() }
    }

    pub(crate) fn first(&self) -> FirstPart {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nothing is left in the first store.
    pub(crate) fn forget_first(&self) -> FirstPart {
        std::mem::replace(&mut self.first.lock().unwrap_or_else(PoisonError::into_inner), FirstPart::Nothing)
    }

    /// From now on a part that is not found may have been freed by its own end.
    pub(crate) fn begin_end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Whether both parts were ended, so that the hold is nobody's.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.iter().all(|ended| ended.load(Ordering::Acquire))
    }

    /// Ends one part of the hold. One that has ended is not ended again, because its store would no longer know it.
    /// The request is made when this is polled.
    pub(crate) async fn end<'a>(
        &self,
        part: Part,
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

    /// The hold in the first store, of a pair in which both stores decide.
    pub(crate) fn held_first(&self) -> Result<Arc<Hold>> {
        match self.first() {
            FirstPart::Held(hold) => Ok(hold),
            FirstPart::Unknown | FirstPart::Nothing => {
                Err(Error::new(ErrorKind::Internal, "a hold in two stores has no part in the old one"))
            }
        }
    }

    fn ended_first(&self) -> Option<BoxFuture<'static, ()>> {
        match self.first() {
            FirstPart::Held(hold) => hold.session.as_ref()?.ended(),
            FirstPart::Unknown | FirstPart::Nothing => None,
        }
    }
}

impl Session for Both {
    /// The authority's. Two equal stores have two groups, and no number for both.
    fn group(&self) -> Option<u64> {
        self.second.group().filter(|_| self.kind == Kind::Gate)
    }

    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        let second = self.second.session.as_ref().and_then(|session| session.ended());
        let first = if self.kind == Kind::Gate { None } else { self.ended_first() };
        match (first, second) {
            (Some(first), Some(second)) => Some(Box::pin(select(first, second).map(drop))),
            (first, second) => first.or(second),
        }
    }
}

impl InOrder {
    /// The parts of a hold: its session, and the hold as the second store knows it.
    pub(crate) fn parts(&self, hold: &Hold) -> Result<(Arc<Both>, Hold)> {
        let both = hold.shared_session::<Both>();
        let both = both.ok_or_else(|| Error::new(ErrorKind::Internal, "the hold is not one of a pair of stores"))?;
        let second = both.second.for_claim(self.for_second(&hold.claim));
        Ok((both, second))
    }
}
