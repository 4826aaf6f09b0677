//! The observers of a registry.

use std::sync::{Arc, OnceLock};

use crate::events::observe::Observer;

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
