//! The registry that annotated functions use on this thread: the global one, unless a test has entered its own.

#[cfg(feature = "testing")]
use std::cell::RefCell;
#[cfg(feature = "testing")]
use std::marker::PhantomData;

use crate::acquire::context::Context;

/// The registry that annotated functions use on this thread.
pub(crate) fn here() -> Context {
    #[cfg(feature = "testing")]
    if let Some(entered) =
        ENTERED.try_with(|entered| entered.borrow().last().map(|(_, context)| context.clone())).ok().flatten()
    {
        return entered;
    }
    Context::global().clone()
}

// The registries that the thread has entered and not left, the innermost last. A registry may be there twice, so each entry has a number.
#[cfg(feature = "testing")]
thread_local!(static ENTERED: RefCell<Vec<(u64, Context)>> = const { RefCell::new(Vec::new()) });

/// While it lives, the annotated functions of its thread use another registry: the one that was entered last and not
/// left. It cannot leave the thread.
#[cfg(feature = "testing")]
#[derive(Debug)]
pub struct Entered(u64, PhantomData<*const ()>);

#[cfg(feature = "testing")]
pub(crate) fn enter(context: &Context) -> Entered {
    let number = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        let number = entered.last().map_or(0, |(last, _)| last + 1);
        entered.push((number, context.clone()));
        number
    });
    Entered(number.unwrap_or_default(), PhantomData)
}

#[cfg(feature = "testing")]
impl Drop for Entered {
    /// Entries may be left in any order.
    fn drop(&mut self) {
        let left = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            let index = entered.iter().position(|(number, _)| *number == self.0)?;
            Some(entered.remove(index))
        });
        // A registry's end may run code that asks for the thread's registry, so nothing is borrowed here.
        drop(left);
    }
}
