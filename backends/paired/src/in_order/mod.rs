//! A lock that is taken in two stores, one after the other: the state of such a store, and the parts that both kinds of it
//! share.

mod attempt;
mod bypass;
mod entry;
mod errors;
mod first_part;
mod hold;
mod identity;
mod passages;
mod profile;
mod ready;
mod undo;
mod undoing;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dlock_contract::{Backend, Claim, Clock, Error, Result};

pub(crate) use first_part::FirstPart;
pub(crate) use hold::{Both, Part};
pub(crate) use identity::check_that_they_merge_alike;
pub(crate) use profile::common;
pub(crate) use undo::Undo;

use bypass::Bypass;
use passages::Passages;
use undoing::Undoing;

/// Two stores, of which the first is asked first.
pub(crate) struct InOrder {
    pub(crate) first: Arc<dyn Backend>,
    pub(crate) second: Arc<dyn Backend>,
    pub(crate) clock: Clock,
    pub(crate) kind: Kind,
    /// Only where a first store that is down is passed over.
    bypass: Option<Bypass>,
    passages: Passages,
    undoing: Undoing,
    closed: AtomicBool,
    closes_members: bool,
}

/// Refuses a store whose holds take up the body's work: its end decides what becomes of that, and nobody would ask for it.
fn check_that_no_body_works_in(store: &dyn Backend, name: &'static str) -> Result<()> {
    if store.settle().is_none() {
        return Ok(());
    }
    let option = name.split(' ').next().unwrap_or(name);
    let text = format!(
        "the {name} has row locks (way=row), whose holds are transactions for the body's work, and a lock in two stores has none: \
         take another way of locking there, or this store alone"
    );
    Err(Error::config(option, text))
}

/// What the two stores are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first only keeps waiters away from the second, which decides.
    Gate,
    /// Both decide. The token and the permit's slot are those of the first store, or those of the second.
    Equals {
        /// Whether they are the second store's.
        numbers_of_second: bool,
    },
}

impl Kind {
    /// The names of both stores in errors.
    pub(crate) const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Gate => ["gate", "authority"],
            Self::Equals { .. } => ["old store", "new store"],
        }
    }
}

impl InOrder {
    pub(crate) fn new(stores: [Arc<dyn Backend>; 2], clock: &Clock, kind: Kind, closes_members: bool) -> Result<Self> {
        let [first, second] = stores;
        let [one, other] = kind.names();
        if Arc::ptr_eq(&first, &second) {
            return Err(Error::config(
                if kind == Kind::Gate { "authority" } else { "new" },
                format!("the {one} and the {other} must be two stores, and both are the same one"),
            ));
        }
        check_that_they_merge_alike(&*first, &*second, kind)?;
        for (store, name) in [(&first, one), (&second, other)] {
            check_that_no_body_works_in(&**store, name)?;
        }
        Ok(Self {
            first,
            second,
            clock: clock.clone(),
            kind,
            bypass: None,
            passages: Passages::default(),
            undoing: Undoing::new(),
            closed: AtomicBool::new(false),
            closes_members,
        })
    }

    /// Passes the first store over while it is down.
    pub(crate) fn passing_over(mut self) -> Self {
        self.bypass = Some(Bypass::default());
        self
    }

    /// The claim as the second store understands it: the order of the waiters may come from the first store alone.
    pub(crate) fn for_second(&self, claim: &Arc<Claim>) -> Arc<Claim> {
        if claim.fair && !self.second.profile().fair {
            return Arc::new(Claim::clone(claim).with(|claim| claim.fair = false));
        }
        claim.clone()
    }

    pub(crate) async fn close(&self) {
        self.closed.store(true, std::sync::atomic::Ordering::Release);
        if self.closes_members {
            self.first.close().await;
            self.second.close().await;
        }
    }
}
