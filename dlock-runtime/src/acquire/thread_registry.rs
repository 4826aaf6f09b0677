//! The registry that annotated functions use on this thread: the global one, unless a test has entered its own.

#[cfg(feature = "testing")]
use std::cell::RefCell;
#[cfg(feature = "testing")]
use std::marker::PhantomData;

use crate::acquire::context::Context;

/// The registry that annotated functions use on this thread.
pub(crate) fn here() -> Context {
    #[cfg(feature = "testing")]
    if let Some(entered) = ENTERED.try_with(|entered| entered.borrow().last().cloned()).ok().flatten() {
        return entered;
    }
    Context::global().clone()
}

#[cfg(feature = "testing")]
thread_local!(static ENTERED: RefCell<Vec<Context>> = const { RefCell::new(Vec::new()) });

/// While it lives, the annotated functions of its thread use another registry. It cannot leave the thread.
#[cfg(feature = "testing")]
#[derive(Debug)]
pub struct Entered(PhantomData<*const ()>);

#[cfg(feature = "testing")]
pub(crate) fn enter(context: &Context) -> Entered {
    let _ = ENTERED.try_with(|entered| entered.borrow_mut().push(context.clone()));
    Entered(PhantomData)
}

#[cfg(feature = "testing")]
impl Drop for Entered {
    fn drop(&mut self) {
        let left = ENTERED.try_with(|entered| entered.borrow_mut().pop());
        drop(left);
    }
}
