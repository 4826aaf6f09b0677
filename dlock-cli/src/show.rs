//! `dlock show`: one lock.

use std::time::Duration;

use dlock::{Key, ListedLock};

use crate::cli::{ShowArgs, StoreArgs};
use crate::exit::{Exit, Failure};
use crate::ls::{SeenHolder, SeenLock};
use crate::output::{note, print, print_json, since, unix_ms, words};
use crate::store::Store;

pub(crate) async fn show(args: &StoreArgs, show: &ShowArgs, json: bool) -> Result<Exit, Failure> {
    let store = Store::open(args).await?;
    let found = find(&store, &show.key).await?;
    if found.is_empty() {
        note(&format!("nobody holds {} in the namespace {}", show.key, store.namespace));
        if json {
            print_json(&found.iter().map(|lock| SeenLock::new(&store, lock, None)).collect::<Vec<_>>())?;
        }
        return Ok(Exit::NO);
    }
    let mut seen = Vec::new();
    for lock in &found {
        // Not every store keeps the last success.
        let last =
            store.registry.lock(Key::from(&lock.key)).backend(&store.backend).last_success().await.ok().flatten();
        let lock_seen = SeenLock::new(&store, lock, last.as_ref());
        if !json {
            tell(&store, lock)?;
            if let Some(last) = &last {
                print(&format!(
                    "  last success   {} ago, took {}\n",
                    words(since(unix_ms(last.started))),
                    words(last.took)
                ))?;
            }
        }
        seen.push(lock_seen);
    }
    if json {
        print_json(&seen)?;
    }
    Ok(Exit::OK)
}

/// The held locks that are meant by a key as somebody types it. Says so if the key in the store is another one.
pub(crate) async fn find(store: &Store, typed: &str) -> Result<Vec<ListedLock>, Failure> {
    let key = store.shown(typed);
    let found = store.registry.locks().backend(&store.backend).namespace(&store.namespace).like(key).await?;
    for lock in &found {
        let shown = store.shown(lock.key.as_str());
        if shown != Key::rendered(key).to_string() {
            note(&format!("nobody holds {key}; {shown} looks like it"));
        }
    }
    Ok(found)
}

fn tell(store: &Store, lock: &ListedLock) -> Result<(), Failure> {
    let mut text = format!("{}\n", store.shown(lock.key.as_str()));
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            text += &format!("  {name:<14} {}\n", value.replace(char::is_control, "\u{fffd}"));
        }
    };
    for holder in &lock.state.holders {
        let seen = SeenHolder::new(holder);
        line("holder", Some(seen.place()));
        line("function", seen.function);
        line("since", seen.since.zip(seen.since_ms).map(|(at, ms)| format!("{at}, for {}", words(since(ms)))));
        line("lease left", seen.lease_left_ms.map(|ms| words(Duration::from_millis(ms))));
        line("token", seen.token.map(|token| token.to_string()));
        line("slot", seen.slot.map(|slot| slot.to_string()));
        line("hold", seen.hold);
        line("trace", seen.trace);
    }
    line("waiters", lock.state.waiters.map(|count| count.to_string()));
    line("in the store", Some(lock.state.names.join("  ")));
    print(&text)
}
