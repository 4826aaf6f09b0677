//! `dlock show`: one lock.

use std::time::Duration;

use dlock::{Key, LastSuccess, ListedLock, Note};

use crate::cli::{ShowArgs, StoreArgs};
use crate::exit::{Exit, Failure};
use crate::find::{find, tell_nearest};
use crate::ls::{SeenHolder, SeenLock};
use crate::output::{moment, note, print, print_json, quoted, since, unix_ms, visible, words};
use crate::store::Store;

/// More waiters are counted, not listed.
pub(crate) const MOST_WAITERS: usize = 20;

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
        // The note is written when a holder begins to ask.
        let held = |(at, ms)| format!("{at}, {} ago (with its wait)", words(since(ms)));
        line("since", seen.since.zip(seen.since_ms).map(held));
        line("lease left", seen.lease_left_ms.map(|ms| words(Duration::from_millis(ms))));
        // An exclusive lock of Redis has its token in the holder's memory alone.
        let token = seen.token.map(|token| token.to_string());
        let only_there = seen.note.is_none().then(|| "this store does not keep it; its holder knows it".to_owned());
        line("token", token.or(only_there));
        line("slot", seen.slot.map(|slot| slot.to_string()));
        line("trace", seen.trace);
        let end = |id| format!("dlock break {} --hold {id} --why TEXT", quoted(store.shown(lock.key.as_str())));
        line("hold", seen.hold.clone());
        line("to end it", seen.hold.map(end));
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
