//! `dlock show`: one lock.

use std::time::Duration;

use dlock::{Key, LastSuccess, ListedLock, Note};

use crate::cli::{ShowArgs, StoreArgs};
use crate::exit::{Exit, Failure};
use crate::ls::{SeenHolder, SeenLock};
use crate::output::{moment, note, print, print_json, since, unix_ms, visible, words};
use crate::store::Store;

/// How long the store is given to list locks for a hint.
const HINT_LIMIT: Duration = Duration::from_secs(1);

/// More waiters are counted, not listed.
const MOST_WAITERS: usize = 20;

/// The most held locks that are searched for a key like the one typed.
const MOST_COMPARED: u32 = 1000;

pub(crate) async fn show(args: &StoreArgs, show: &ShowArgs, json: bool) -> Result<Exit, Failure> {
    let store = Store::open(args).await?;
    let found = find(&store, &show.key).await?;
    if found.is_empty() {
        note(&format!("nobody holds {} in the namespace {}", show.key, store.namespace));
        tell_last_success(&store, &show.key).await;
        tell_nearest(&store, &show.key).await;
        if json {
            print("[]\n")?;
        }
        return Ok(Exit::NO);
    }
    let mut all = Vec::new();
    for lock in &found {
        // Not every store keeps the last success, or the names of the waiters.
        let of_lock = store.registry.lock(Key::from(&lock.key)).backend(&store.backend);
        let last = of_lock.last_success().await.ok().flatten();
        let waiters = waiters(&store, lock).await;
        if json {
            let mut seen = SeenLock::new(&store, lock);
            seen.first_waiters = waiters;
            seen.last_success = last.map(|last| moment(unix_ms(last.started)));
            all.push(seen);
        } else {
            tell(&store, lock, &waiters.unwrap_or_default(), last.as_ref())?;
        }
    }
    if json {
        print_json(&all)?;
    }
    Ok(Exit::OK)
}

/// A task that is overdue is held by nobody. Values in its key must be typed with their marks.
async fn tell_last_success(store: &Store, typed: &str) {
    let lock = store.registry.lock(Key::rendered(store.shown(typed))).backend(&store.backend);
    // Not every store keeps it.
    if let Ok(Some(last)) = lock.last_success().await {
        note(&format!("its last success: {}", last_success(&last)));
    }
}

/// The first waiters, where the store has their names: host, process and function.
async fn waiters(store: &Store, lock: &ListedLock) -> Option<Vec<String>> {
    if lock.state.waiters == Some(0) {
        return None;
    }
    let of_lock = store.registry.lock(Key::from(&lock.key)).backend(&store.backend);
    let waiters = of_lock.waiters(MOST_WAITERS).await.ok()??;
    let words = |note: &Note| format!("{} {}", note.place(), note.site().unwrap_or_default()).trim_end().to_owned();
    Some(waiters.iter().map(words).collect())
}

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

/// The held locks that are alike, for a hint. None if the key has no parts, because it would be compared with all held locks, and
/// none if the store cannot list them, or not so soon.
pub(crate) async fn alike(store: &Store, key: &str) -> Vec<ListedLock> {
    if !key.contains([':', '/']) {
        return Vec::new();
    }
    let held = store.registry.locks().backend(&store.backend).namespace(&store.namespace).like(key);
    tokio::time::timeout(HINT_LIMIT, held).await.map_or_else(|_| Vec::new(), Result::unwrap_or_default)
}

/// Names the held lock that was probably meant: a slip of the finger must not read as "it is free".
async fn tell_nearest(store: &Store, typed: &str) {
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

/// A key as a word of the shell.
pub(crate) fn quoted(key: &str) -> String {
    format!("'{}'", key.replace('\'', r"'\''"))
}

fn tell(store: &Store, lock: &ListedLock, waiters: &[String], last: Option<&LastSuccess>) -> Result<(), Failure> {
    let mut text = format!("{}\n", visible(store.shown(lock.key.as_str())));
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            text += &format!("  {name:<14} {}\n", visible(&value));
        }
    };
    for holder in &lock.state.holders {
        let seen = SeenHolder::new(holder);
        line("holder", Some(holder.note.place()));
        line("function", seen.function);
        line("since", seen.since.zip(seen.since_ms).map(|(at, ms)| format!("{at}, for {}", words(since(ms)))));
        line("lease left", seen.lease_left_ms.map(|ms| words(Duration::from_millis(ms))));
        // An exclusive lock of Redis has its token in the holder's memory alone.
        let token = seen.token.map(|token| token.to_string());
        let only_there = seen.note.is_none().then(|| "this store does not keep it; its holder knows it".to_owned());
        line("token", token.or(only_there));
        line("slot", seen.slot.map(|slot| slot.to_string()));
        line("trace", seen.trace);
        let end = |id| format!("dlock break {} --hold {id} --why TEXT", quoted(store.shown(lock.key.as_str())));
        line("to end it", seen.hold.as_deref().map(end));
        line("hold", seen.hold);
    }
    let waiting = lock.state.waiters.map_or_else(|| "this store does not count them".into(), |count| count.to_string());
    line("waiters", Some(waiting));
    for waiter in waiters {
        line("waiter", Some(waiter.clone()));
    }
    line("in the store", Some(lock.state.names.join("  ")));
    line("last success", last.map(last_success));
    print(&text)
}

fn last_success(last: &LastSuccess) -> String {
    format!("{} ago, took {}", words(since(unix_ms(last.started))), words(last.took))
}
