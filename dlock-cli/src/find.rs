//! The held locks that are meant by a key as somebody types it, and those that are like it.

use std::time::Duration;

use dlock::{Key, ListedLock};

use crate::exit::Failure;
use crate::output::{note, quoted};
use crate::store::Store;

/// How long the store is given to list locks for a hint.
const HINT_LIMIT: Duration = Duration::from_secs(1);

/// The most held locks that are searched for a key like the one typed.
const MOST_COMPARED: u32 = 1000;

/// The held locks that are meant by a key as somebody types it. Says so if the key in the store is another one.
pub(crate) async fn find(store: &Store, typed: &str) -> Result<Vec<ListedLock>, Failure> {
    let key = store.shown(typed);
    let found = store.registry.locks().backend(&store.backend).namespace(&store.namespace).like(key).await?;
    tell_alike(store, key, &found);
    Ok(found)
}

/// Says which of these locks are not the one of this key.
pub(crate) fn tell_alike(store: &Store, key: &str, found: &[ListedLock]) {
    for shown in found.iter().map(|lock| store.shown(lock.key.as_str())) {
        if shown != Key::rendered(key).to_string() {
            note(&format!("nobody holds {key}; {shown} looks like it"));
        }
    }
}

/// Held locks with a similar key, as a hint. Empty if the key has no parts, because all held locks would be compared with it, or if
/// the store cannot list locks in time.
pub(crate) async fn alike(store: &Store, key: &str) -> Vec<ListedLock> {
    if !key.contains([':', '/']) {
        return Vec::new();
    }
    let held = store.registry.locks().backend(&store.backend).namespace(&store.namespace).like(key);
    tokio::time::timeout(HINT_LIMIT, held).await.map_or_else(|_| Vec::new(), Result::unwrap_or_default)
}

/// Names the held lock that was probably meant: a slip of the finger must not read as "it is free".
pub(crate) async fn tell_nearest(store: &Store, typed: &str) {
    let page = store.registry.locks().backend(&store.backend).limit(MOST_COMPARED).page();
    let Ok(page) = page.await else { return };
    let plain = |key: &str| key.replace(['<', '>'], "");
    let alike = |lock: &&ListedLock| strsim::damerau_levenshtein(&plain(store.shown(lock.key.as_str())), &plain(typed));
    match page.locks.iter().min_by_key(alike) {
        Some(lock) if alike(&lock) <= 1 + typed.len() / 5 => {
            note(&format!("{} is held, and its name is like this one", quoted(store.shown(lock.key.as_str()))));
        }
        Some(_) => note("other locks are held: dlock ls"),
        None => note("no lock is held there"),
    }
}
