//! The registry that a test has entered in place of the global one.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::context::Context;

thread_local!(static ENTERED: RefCell<Vec<Context>> = const { RefCell::new(Vec::new()) });

/// How many test kits there are, for calls that have lost theirs.
static KITS: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn is_in_use() -> bool {
    KITS.load(Ordering::Relaxed) > 0
}

/// One test kit.
#[derive(Debug)]
pub struct InUse(());

impl InUse {
    /// Counts a kit until it is dropped.
    #[expect(clippy::new_without_default, reason = "each one counts")]
    #[must_use]
    pub fn new() -> Self {
        KITS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        KITS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// While it lives, the annotated functions of its thread use another registry. It cannot leave the thread.
#[derive(Debug)]
pub struct Entered(PhantomData<*const ()>);

pub(crate) fn enter(context: &Context) -> Entered {
    let _ = ENTERED.try_with(|entered| entered.borrow_mut().push(context.clone()));
    Entered(PhantomData)
}

/// The one that this thread has entered last.
pub(crate) fn latest() -> Option<Context> {
    ENTERED.try_with(|entered| entered.borrow().last().cloned()).ok().flatten()
}

impl Drop for Entered {
    fn drop(&mut self) {
        let left = ENTERED.try_with(|entered| entered.borrow_mut().pop());
        drop(left);
    }
}
