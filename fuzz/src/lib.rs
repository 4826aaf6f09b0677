//! The rules for the readers of foreign text, which hold for each text. Each function is a target of cargo-fuzz, and
//! `tests/readers.rs` runs it over the corpus and over changes of it.
//!
//! None may panic: a text of a stranger must not end a process.

use std::time::Duration;

use dlock::{Key, LockKey, MAX_KEY_BYTES, Note, Registry};
use dlock_redis::internal::{check, layout, listed_key, owner_of, released, scanned};

const PASSWORD: &str = "SecretWord";

/// The URL of a store.
pub fn url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let registry = Registry::new();
    if let Err(error) = registry.connect_lazy("store", text) {
        let shown = format!("{error} {error:?}");
        // Some inputs of the corpus have this password. Elsewhere it may be a host, which is shown.
        let password = text.split_once("://").and_then(|(_, rest)| Some(rest.split_once('@')?.0.split_once(':')?.1));
        let is_secret = password.is_some_and(|it| it.contains(PASSWORD)) && text.matches(PASSWORD).count() == 1;
        assert!(!is_secret || !shown.contains(PASSWORD), "{shown}");
    }
}

/// A key as somebody types it, and a name as it stands in a store.
pub fn key(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let key = Key::rendered(text);
    assert_eq!(Key::rendered(&key.to_string()).to_string(), key.to_string(), "a shown key is the same key");
    match LockKey::new("shop", key) {
        Ok(lock) => {
            assert!(lock.as_str().len() <= MAX_KEY_BYTES);
            assert_eq!(LockKey::from_stored(lock.as_str()).as_ref(), Some(&lock), "a stored name is read back");
        }
        Err(error) => assert!(text.len() > MAX_KEY_BYTES / 4, "{error}"),
    }
    if let Some(lock) = LockKey::from_stored(text) {
        assert_eq!(lock.as_str(), text);
    }
}

/// The note of a holder, as it stands in a store.
pub fn note(data: &[u8]) {
    let note = Note::from_stored(&String::from_utf8_lossy(data));
    let shown = [note.to_string(), note.place(), note.in_words(u64::MAX), format!("{note:?}")];
    assert!(shown.iter().all(|text| text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')), "{shown:?}");
    let _ = (note.host(), note.pid(), note.site(), note.since_ms(), note.trace());
}

/// A value of an option.
pub fn value(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(time) = dlock_values::duration(text) {
        assert!(time > Duration::ZERO && time <= dlock_values::LONGEST);
    }
    let _ = (dlock_values::wait(text).is_ok(), dlock_values::renew(text).is_ok(), dlock_values::retry(text).is_ok());
    let _ = (dlock_values::pauses(text).is_ok(), dlock_values::number(text).is_ok(), dlock_values::count(text).is_ok());
    let _ = dlock_values::max_waiters(text).is_ok();
}

/// Settings of locked functions, from outside of the program.
pub fn tuning(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = Registry::new().tune_from(text).is_ok();
}

/// The bytes that a Redis sends.
pub fn redis_reply(data: &[u8]) {
    let Ok(reply) = redis::parse_redis_value(data) else { return };
    let _ = (check::is_forbidden(&reply), check::settings(&reply).is_some(), released(&reply).is_ok());
    if let Some(info) = check::text(&reply) {
        let _ = (check::uptime(info), check::field(info, "redis_version"));
    }
    for name in scanned(&reply).into_iter().flat_map(|(_, names)| names) {
        let _ = (listed_key(name.clone(), true), listed_key(name, false));
    }
    if let redis::Value::BulkString(value) = &reply {
        let _ = (owner_of(value), layout::note_of(value), layout::is_ours(value));
    }
}
