//! The holds of one call, as the calls inside of its body see them.

use std::sync::Arc;

use dlock_contract::LossCause;

use crate::hold::release;
use crate::hold::tenure::Tenure;
use crate::queue::Won;

/// The holds of one call: the last one, and those that it took before. A list, because a call with very many keys takes one
/// after another, and each is inside of those before.
#[derive(Clone, Debug)]
pub(crate) struct Holds {
    last: Arc<Tenure>,
    /// Whether the last one is the hold of an enclosing call.
    is_joined: bool,
    before: Option<Arc<Self>>,
}

/// In a loop: a recursive drop would need a stack as long as the list.
impl Drop for Holds {
    fn drop(&mut self) {
        let mut next = self.before.take();
        while let Some(before) = next {
            next = Arc::into_inner(before).and_then(|mut last| last.before.take());
        }
    }
}

impl Holds {
    pub(crate) const fn of(last: Arc<Tenure>, is_joined: bool) -> Self {
        Self { last, is_joined, before: None }
    }

    /// With a further hold, which is inside of those before.
    pub(crate) fn with(self, mut further: Self) -> Self {
        further.before = Some(Arc::new(self));
        further
    }

    pub(crate) const fn last(&self) -> &Arc<Tenure> {
        &self.last
    }

    /// The holds of its own, the last one first. An enclosing call has the joined ones.
    pub(crate) fn own(self) -> impl Iterator<Item = Arc<Tenure>> {
        let backwards = std::iter::successors(Some(self), |holds| holds.before.as_deref().cloned());
        backwards.filter(|holds| !holds.is_joined).map(|holds| holds.last.clone())
    }
}

/// A call for several keys that is not polled cannot go on, and nothing runs under those that it has.
impl Won for Holds {
    fn give_back(self: Arc<Self>) {
        for tenure in Self::clone(&self).own().filter(|tenure| !tenure.is_handed_out()) {
            tenure.lose(LossCause::Deadline);
            if !tenure.is_being_released() {
                release::later(tenure);
            }
        }
    }
}
