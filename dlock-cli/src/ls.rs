//! `dlock ls`: the locks that are held.

use dlock::{Holder, ListedLock, LockState};
use serde::Serialize;

use crate::cli::{LsArgs, StoreArgs};
use crate::exit::{Exit, Failure};
use crate::find::{alike, tell_alike};
use crate::output::{moment, note, print_json, print_table, since, words};
use crate::store::Store;

pub(crate) async fn list(args: &StoreArgs, ls: &LsArgs, json: bool) -> Result<Exit, Failure> {
    let store = Store::open(args).await?;
    let mut pages = store.registry.locks().backend(&store.backend).prefix(&ls.prefix).limit(1000);
    let mut locks = Vec::new();
    let limit = ls.limit as usize;
    let mut is_whole = true;
    loop {
        let page = pages.clone().page().await?;
        locks.extend(page.locks);
        let Some(next) = page.next else { break };
        if locks.len() >= limit {
            is_whole = false;
            break;
        }
        pages = pages.after(next);
    }
    is_whole &= locks.len() <= limit;
    locks.truncate(limit);
    locks.sort_by(|one, other| one.key.cmp(&other.key));
    if json {
        print_json(&locks.iter().map(|lock| SeenLock::new(&store, lock)).collect::<Vec<_>>())?;
    } else {
        let rows = locks.iter().flat_map(|lock| rows(&store, lock));
        if locks.is_empty() {
            let beginning =
                if ls.prefix.is_empty() { String::new() } else { format!(" that begins with {}", ls.prefix) };
            note(&format!("nobody holds a lock{beginning} in the namespace {}", store.namespace));
            tell_alike(&store, &ls.prefix, &alike(&store, &ls.prefix).await);
        }
        print_table(&["KEY", "HOLDER", "FUNCTION", "FOR", "LEASE LEFT", "HOLD", "WAIT"], rows)?;
    }
    if !is_whole {
        note(&format!("there are more than {}: write a prefix, or --limit", ls.limit));
    }
    Ok(Exit::OK)
}

/// A row for each holder.
fn rows(store: &Store, lock: &ListedLock) -> Vec<Vec<String>> {
    let waiters = lock.state.waiters.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let row = |holder: &Holder| {
        let seen = SeenHolder::new(holder);
        vec![
            store.shown(lock.key.as_str()).to_owned(),
            holder.note.place(),
            seen.function.unwrap_or_default(),
            seen.since_ms.map(|at| words(since(at))).unwrap_or_default(),
            seen.lease_left_ms.map(|ms| words(std::time::Duration::from_millis(ms))).unwrap_or_default(),
            seen.hold.unwrap_or_default(),
            waiters.clone(),
        ]
    };
    lock.state.holders.iter().map(row).collect()
}

/// A lock as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct SeenLock {
    key: String,
    namespace: String,
    holders: Vec<SeenHolder>,
    waiters: Option<u64>,
    /// The first waiters, as far as the store names them: only `dlock show` asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_waiters: Option<Vec<String>>,
    names_in_store: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_success: Option<String>,
}

impl SeenLock {
    pub(crate) fn new(store: &Store, lock: &ListedLock) -> Self {
        let LockState { holders, waiters, names, .. } = &lock.state;
        Self {
            key: store.shown(lock.key.as_str()).to_owned(),
            namespace: store.namespace.clone(),
            holders: holders.iter().map(SeenHolder::new).collect(),
            waiters: *waiters,
            first_waiters: None,
            names_in_store: names.clone(),
            last_success: None,
        }
    }
}

/// A holder as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct SeenHolder {
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) function: Option<String>,
    pub(crate) since: Option<String>,
    #[serde(skip)]
    pub(crate) since_ms: Option<u64>,
    pub(crate) trace: Option<String>,
    pub(crate) hold: Option<String>,
    pub(crate) token: Option<u64>,
    pub(crate) lease_left_ms: Option<u64>,
    pub(crate) slot: Option<u32>,
    /// The holder's own text, where it is no note of dlock's.
    pub(crate) note: Option<String>,
}

impl SeenHolder {
    pub(crate) fn new(holder: &Holder) -> Self {
        let note = &holder.note;
        Self {
            host: note.host().map(Into::into),
            pid: note.pid(),
            function: note.site().map(Into::into),
            since: note.since_ms().map(moment),
            since_ms: note.since_ms(),
            trace: note.trace().map(Into::into),
            hold: holder.id.map(|id| id.to_string()),
            token: holder.token,
            lease_left_ms: holder.lease_left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            slot: holder.slot,
            note: note.host().is_none().then(|| note.to_string()),
        }
    }
}
