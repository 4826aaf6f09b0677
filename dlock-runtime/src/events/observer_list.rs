//! Observers, and those of a registry.

use std::sync::{Arc, OnceLock};

use crate::events::event::Event;
use crate::events::store_event::StoreEvent;
use crate::site::{Label, StoreLabel};

/// Receives events. An observer may be slow or panic. Panics are caught and counted; the lock is not affected.
///
/// Events of a caller are sent on its own thread; for a blocking caller, when its call returns. Events of a lock while
/// it is held are sent on a thread of dlock's. It keeps 4096 events for slow observers, and counts the events that it
/// drops.
///
/// ```
/// # use dlock_runtime as dlock;
/// use dlock::{Event, Label, Observer};
/// struct Timeouts(std::sync::atomic::AtomicU64);
/// impl Observer for Timeouts {
///     fn on_event(&self, label: &Label, event: &Event) {
///         if let Event::TimedOut { .. } = event {
///             eprintln!("alert: nobody gets {} on {}", label.template(), label.backend());
///             self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///         }
///     }
/// }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Receives one event. The label carries the key's template, never a rendered key.
    fn on_event(&self, label: &Label, event: &Event);

    /// Receives one event of a store. Default: ignores it.
    fn on_store_event(&self, store: &StoreLabel, event: &StoreEvent) {
        let _ = (store, event);
    }

    /// Receives the number of events that were dropped since the last call, because observers were too slow. Default:
    /// ignores it.
    fn on_dropped(&self, events: u64) {
        let _ = events;
    }
}

/// A list to which observers are only added. Each event reads it without a lock and without a copy.
#[derive(Default)]
pub(super) struct Observers(OnceLock<Box<Node>>);

struct Node {
    observer: Arc<dyn Observer>,
    next: Observers,
}

impl Observers {
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<dyn Observer>> {
        std::iter::successors(self.0.get(), |node| node.next.0.get()).map(|node| &node.observer)
    }

    pub(super) fn add(&self, observer: Arc<dyn Observer>) {
        let (mut end, mut node) = (self, Box::new(Node { observer, next: Self::default() }));
        // Another thread may add one too.
        while let Err(refused) = end.0.set(node) {
            node = refused;
            let Some(before) = end.0.get() else { return };
            end = &before.next;
        }
    }
}
