//! An observer that raises an alert when a wait runs out.

use std::sync::{Arc, Mutex};

use dlock::{ErrorKind, Event, Key, Label, Observer, Wait};

use super::own_process::LONG;
use crate::arena::{Arena, PATIENCE, TTL, answered};

/// The text of an alert: the template, never a customer's number, and the store.
#[derive(Clone, Default)]
struct Alerts(Arc<Mutex<Vec<(String, String)>>>);

impl Observer for Alerts {
    fn on_event(&self, label: &Label, event: &Event) {
        if let Event::TimedOut { .. } = event {
            self.0.lock().unwrap().push((label.template().to_owned(), label.backend().to_owned()));
        }
    }
}

pub(super) fn a_timeout_raises_an_alert(arena: &Arena) {
    arena.run(async {
        let (holder, other) = (arena.near().await, arena.near().await);
        let alerts = Alerts::default();
        other.observe(alerts.clone());
        let stock = |registry: &dlock::Registry, ttl, wait| {
            registry.lock(Key::text("stock:").value(&4711)).ttl(ttl).wait(Wait::UpTo(wait))
        };
        let guard = stock(&holder, TTL, PATIENCE).acquire().await.unwrap();
        // Longer than the ttl: the holder lives and renews, and the wait still ends. On a busy machine it may end with a request
        // that the store does not answer in time.
        let waits = || stock(&other, LONG, TTL + TTL / 4);
        let error = answered(async || waits().acquire().await).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::WaitTimeout, "{error}");
        assert!(error.is_retryable());
        assert_eq!(*alerts.0.lock().unwrap(), [("stock:<>".to_owned(), "store".to_owned())]);
        guard.check().unwrap();
        guard.release().await.unwrap();
        stock(&other, TTL, PATIENCE).acquire().await.unwrap().release().await.unwrap();
        assert_eq!(alerts.0.lock().unwrap().len(), 1, "a wait with a good end raises no alert");
        arena.assert_nothing_left().await;
    });
}
