//! A lock that is taken in two stores, one after the other: the parts that `paired` and `migrating` share.

mod admissions;
mod admit;
mod attempt;
mod bypass;
mod errors;
mod first_hold;
mod hold;
mod identity;
mod profile;
mod ready;
mod two_stores;
mod undo;
mod undo_limits;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dlock_contract::{Backend, Claim, Error, Result};
use dlock_store::Clock;
use futures::future::join;

pub(crate) use first_hold::FirstHold;
pub(crate) use hold::{HoldSession, Side};
pub(crate) use identity::check_same_identity;
pub(crate) use profile::common;
pub(crate) use undo::Undo;

use admissions::Admissions;
use bypass::Bypass;
use undo_limits::UndoLimits;

/// Two stores. The first one is asked first.
pub(crate) struct InOrder {
    pub(crate) first: Arc<dyn Backend>,
    pub(crate) second: Arc<dyn Backend>,
    pub(crate) clock: Clock,
    pub(crate) kind: PairKind,
    /// Present if a first store that is down is bypassed.
    bypass: Option<Arc<Bypass>>,
    admissions: Admissions,
    undo_limits: UndoLimits,
    closed: AtomicBool,
    closes_members: bool,
}

/// Refuses a store whose holds are transactions for the body's work. A pair has no way to commit them.
fn check_has_no_row_locks(store: &dyn Backend, name: &'static str) -> Result<()> {
    if store.settle().is_none() {
        return Ok(());
    }
    let option = name.split(' ').next().unwrap_or(name);
    let text = format!(
        "the {name} has row locks (way=row): their holds are transactions for the body's work, which a pair of stores cannot commit; \
         use another way of locking there, or use this store alone"
    );
    Err(Error::config(option, text))
}

/// How the two stores work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairKind {
    /// The first store only keeps waiters away from the second one, which decides.
    Gate,
    /// Both stores decide. Token and slot come from one of them.
    Equals {
        /// Whether token and slot come from the second store.
        numbers_of_second: bool,
    },
}

impl PairKind {
    /// The names of both stores in errors.
    pub(crate) const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Gate => ["gate", "authority"],
            Self::Equals { .. } => ["old store", "new store"],
        }
    }

    /// The error if both are one store.
    fn one_store(self) -> Error {
        let ([one, other], option) = (self.names(), if self == Self::Gate { "authority" } else { "new" });
        Error::config(option, format!("the {one} and the {other} must be two stores, but they are the same one"))
    }
}

impl InOrder {
    pub(crate) fn new(
        stores: [Arc<dyn Backend>; 2],
        clock: &Clock,
        kind: PairKind,
        closes_members: bool,
    ) -> Result<Self> {
        let [first, second] = stores;
        if Arc::ptr_eq(&first, &second) {
            return Err(kind.one_store());
        }
        check_same_identity(&*first, &*second, kind)?;
        for (store, name) in [&first, &second].into_iter().zip(kind.names()) {
            check_has_no_row_locks(&**store, name)?;
        }
        Ok(Self {
            first,
            second,
            clock: clock.clone(),
            kind,
            bypass: None,
            admissions: Admissions::default(),
            undo_limits: UndoLimits::new(),
            closed: AtomicBool::new(false),
            closes_members,
        })
    }

    /// Bypasses the first store while it is down.
    pub(crate) fn with_bypass(mut self) -> Self {
        self.bypass = Some(Bypass::new(self.first.clone(), &self.clock));
        self
    }

    /// The claim for the second store. If only the first store is fair, it alone orders the waiters.
    pub(crate) fn for_second(&self, claim: &Arc<Claim>) -> Arc<Claim> {
        if claim.fair && !self.second.profile().fair {
            return Arc::new(Claim::clone(claim).with(|claim| claim.fair = false));
        }
        claim.clone()
    }

    /// Whether the first store is down and bypassed.
    fn is_first_bypassed(&self) -> bool {
        self.bypass.as_ref().is_some_and(|bypass| bypass.is_down())
    }

    /// Bypasses the first store from now on, if this pair bypasses it at all.
    fn mark_first_down(&self) {
        if let Some(bypass) = &self.bypass {
            bypass.mark_down();
        }
    }

    pub(crate) async fn close(&self) {
        self.closed.store(true, std::sync::atomic::Ordering::Release);
        if let Some(bypass) = &self.bypass {
            bypass.close();
        }
        if self.closes_members {
            // Together: a silent one must not use up the time of the other.
            join(self.first.close(), self.second.close()).await;
        }
    }
}
