//! Warns of guards that are dropped as soon as the caller has got them, as with `let _ = …`. In debug builds only.
//!
//! Such a program compiles, and its section runs without the lock.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dlock_store::line;

use crate::events::lines::line_of;
use crate::site::Label;

/// A guard that is dropped sooner was not used. In real time, because a test's clock stands still. A debug build needs 10 µs
/// where code runs for the first time, as in a program that drops its only guard at its start.
const SHORTEST_USE: Duration = Duration::from_micros(20);

/// The places that were reported, with the templates of their keys.
static TOLD: Mutex<BTreeSet<(String, String)>> = Mutex::new(BTreeSet::new());

/// Since when the caller has a guard that it has not used; `None` if it has used it.
#[derive(Debug, Default)]
pub(super) struct Use(Mutex<Option<Instant>>);

impl Use {
    pub(super) fn begin(&self) {
        self.set(Some(Instant::now()));
    }

    pub(super) fn note_use(&self) {
        self.set(None);
    }

    /// The guard is dropped. Each place is reported once.
    pub(super) fn end(&self, label: &Label) {
        let since = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if since.is_none_or(|since| since.elapsed() > SHORTEST_USE) || std::thread::panicking() {
            return;
        }
        let (here, key) = (label.place(), label.template().to_owned());
        if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert((here.clone(), key.clone())) {
            let label = label.clone();
            line(move || {
                line_of!(
                    warn,
                    label,
                    here,
                    "a guard was dropped as soon as the lock was held, so that next to nothing ran under the lock: write `let _guard = …`, because `let _ = …` drops the guard"
                );
            });
        }
    }

    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}
