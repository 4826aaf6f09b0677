//! The panics of the engine. Tokio and the engine itself catch most of them, so nobody else would hear of one.

use std::cell::RefCell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

use dlock_store::engine::simulation::is_here;

thread_local!(static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) });

/// From now on the panics of this thread's simulated processes are counted. A body's planned panic calls no hook.
pub(super) fn count() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if is_here() {
                PANICS.with_borrow_mut(|panics| panics.push(panic.to_string().replace('\n', " ")));
            } else {
                before(panic);
            }
        }));
    });
    PANICS.take();
}

/// The first one since then, with the number of all.
pub(super) fn take() -> Option<String> {
    let panics = PANICS.take();
    let first = panics.first()?;
    Some(format!("{first} ({} in all)", panics.len()))
}
