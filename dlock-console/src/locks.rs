//! The locks of one store: one page of its listing, as JSON.

use std::sync::Arc;

use dlock::{Cursor, ErrorKind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::seen::{SeenLock, now_ms};
use crate::shared::Shared;

/// How many entries of the store one look reads.
const PAGE_ENTRIES: u32 = 50;

/// Which part of which store a page shows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct View {
    /// Empty for the default store.
    store: String,
    prefix: String,
    /// The cursor of the page before; empty for the first page.
    after: String,
}

/// `None` once the registry is shut down.
pub(crate) async fn look(shared: Arc<Shared>, view: Arc<View>) -> Option<Value> {
    let registry = &shared.registry;
    let mut listing = registry.locks().prefix(&view.prefix).limit(PAGE_ENTRIES);
    if !view.store.is_empty() {
        listing = listing.backend(&view.store);
    }
    if !view.after.is_empty() {
        listing = listing.after(Cursor::new(&*view.after));
    }
    let page = match listing.page().await {
        Ok(page) => page,
        Err(error) if *error.kind() == ErrorKind::ShutDown => return None,
        Err(error) => return Some(json!({ "error": error.to_string(), "now": now_ms() })),
    };
    let namespace = registry.defaults().namespace.clone();
    let locks: Vec<_> = page.locks.iter().map(|lock| SeenLock::new(lock, &namespace)).collect();
    shared.activity.saw(&view.store, &locks);
    Some(json!({ "locks": locks, "next": page.next.as_ref().map(Cursor::as_str), "now": now_ms() }))
}
