//! Locks, holders and times as the page gets them.

use std::time::{SystemTime, UNIX_EPOCH};

use dlock::{Error, Holder, ListedLock};
use serde::Serialize;
use serde_json::{Value, json};

/// The most holders of one lock that are listed; more are counted.
const MOST_HOLDERS: usize = 20;

/// A lock as the page gets it.
#[derive(Debug, Serialize)]
pub(crate) struct SeenLock {
    /// The full name, for a break.
    name: String,
    /// The key as people read it.
    pub(crate) key: String,
    pub(crate) holders: Vec<SeenHolder>,
    /// The number of all holders.
    holder_count: usize,
    waiters: Option<u64>,
    names_in_store: Vec<String>,
}

impl SeenLock {
    pub(crate) fn new(lock: &ListedLock, namespace: &str) -> Self {
        let state = &lock.state;
        Self {
            name: lock.key.as_str().to_owned(),
            key: shown(lock.key.as_str(), namespace).to_owned(),
            holders: state.holders.iter().take(MOST_HOLDERS).map(SeenHolder::new).collect(),
            holder_count: state.holders.len(),
            waiters: state.waiters,
            names_in_store: state.names.clone(),
        }
    }
}

/// A holder as the page gets it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SeenHolder {
    /// Host and process, or the text of a foreign client's holder.
    #[serde(skip)]
    pub(crate) place: String,
    host: Option<String>,
    pid: Option<u32>,
    function: Option<String>,
    since: Option<u64>,
    trace: Option<String>,
    pub(crate) hold: Option<String>,
    token: Option<u64>,
    lease_left: Option<u64>,
    slot: Option<u32>,
    /// The holder's own text, where it is no note of dlock's.
    foreign: Option<String>,
}

impl SeenHolder {
    pub(crate) fn new(holder: &Holder) -> Self {
        let note = &holder.note;
        Self {
            place: note.place(),
            host: note.host().map(Into::into),
            pid: note.pid(),
            function: note.site().map(Into::into),
            since: note.since_ms(),
            trace: note.trace().map(Into::into),
            hold: holder.id.map(|id| id.to_string()),
            token: holder.token,
            lease_left: holder.lease_left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            slot: holder.slot,
            foreign: note.host().is_none().then(|| note.to_string()),
        }
    }
}

/// The key without the first part, which all keys of the namespace have.
pub(crate) fn shown<'a>(name: &'a str, namespace: &str) -> &'a str {
    let rest = name.strip_prefix("dl1:").and_then(|rest| rest.strip_prefix(namespace));
    rest.and_then(|rest| rest.strip_prefix(':')).unwrap_or(name)
}

/// The error's own words, for the page.
pub(crate) fn words(error: &Error) -> Value {
    json!({ "error": error.to_string() })
}

/// Milliseconds since 1970. The page counts by the clock of this process, not by the browser's.
pub(crate) fn now_ms() -> u64 {
    ms(SystemTime::now())
}

/// Milliseconds since 1970.
pub(crate) fn ms(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
