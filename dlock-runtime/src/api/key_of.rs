//! The key that a call would lock, without the call. The call is begun, stopped where it would acquire, and dropped.
//!
//! A companion function for each annotated one would be less certain, and cannot be written beside a method of a trait.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use dlock_contract::{Error, ErrorKind, Key, Result};
use tokio::task;

use crate::site::{Keys, Site};

thread_local!(static KEY_QUERY: RefCell<Option<KeyQuery>> = const { RefCell::new(None) });

/// A call that is asked for its keys.
struct KeyQuery {
    found: Vec<Key>,
    /// The task of the call. If it polls other tasks, their calls are real; see `guard::scope`.
    task: Option<task::Id>,
}

impl KeyQuery {
    fn is_here(&self) -> bool {
        self.task == task::try_id()
    }
}

/// The key that this call of an annotated async function would lock. The body does not run, and no store is asked.
///
/// ```
/// # mod dlock { pub use dlock_runtime::*; }
/// # async fn deduct(_id: u64) -> Result<(), dlock::Error> { dlock::lock("k").run(|_| async {}).await }
/// # fn main() {
/// // With `#[distributed_lock(key = "stock:<id>")] async fn deduct(id: u64) -> …`:
/// // assert_eq!(dlock::key_of(deduct(42))?.to_string(), "stock:<42>");
/// assert!(dlock::key_of(async {}).is_err()); // no annotated function
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the future is no call of an annotated function, or one with several keys.
pub fn key_of<F: Future>(call: F) -> Result<Key> {
    single(keys_of(call)?)
}

/// The keys that this call of an annotated async function would lock; several for `keys = […]`.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the future is no call of an annotated function.
pub fn keys_of<F: Future>(call: F) -> Result<Vec<Key>> {
    query(|| {
        let call = pin!(call);
        let _ = call.poll(&mut Context::from_waker(Waker::noop()));
    })
}

/// As [`key_of`], for a function that is not async: `key_of_blocking(|| deduct(42))`.
///
/// # Errors
/// As [`key_of`].
pub fn key_of_blocking<T>(call: impl FnOnce() -> T) -> Result<Key> {
    single(query(|| drop(call()))?)
}

/// Notes the key if the caller wants only the key. An error then ends the call.
pub(crate) fn note_key(site: &Site, keys: &Keys) -> Option<Error> {
    let mut noted = false;
    let _ = KEY_QUERY.try_with(|query| {
        if let Some(KeyQuery { found, .. }) = query.borrow_mut().as_mut().filter(|query| query.is_here()) {
            noted = true;
            let template = |number: usize| site.templates.get(number).or(site.templates.first()).copied();
            match keys {
                Keys::One(key) => found.push(Key::of(key, template(0).unwrap_or_default())),
                Keys::Several(keys) => {
                    found.extend(keys.iter().map(|key| Key::of(key, template(0).unwrap_or_default())));
                }
            }
        }
    });
    noted.then(|| Error::new(ErrorKind::Internal, "only the key was asked for"))
}

/// Whether only the key is wanted.
pub(crate) fn is_key_query() -> bool {
    KEY_QUERY.try_with(|query| query.borrow().as_ref().is_some_and(KeyQuery::is_here)).unwrap_or_default()
}

fn query(call: impl FnOnce()) -> Result<Vec<Key>> {
    struct Restore(Option<KeyQuery>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let outer = self.0.take();
            let _ = KEY_QUERY.try_with(|query| query.replace(outer));
        }
    }
    let this_call = KeyQuery { found: Vec::new(), task: task::try_id() };
    let outer = KEY_QUERY.try_with(|query| query.replace(Some(this_call))).ok().flatten();
    let _restore = Restore(outer);
    call();
    let found = KEY_QUERY.try_with(RefCell::take).ok().flatten().map(|query| query.found).unwrap_or_default();
    if found.is_empty() {
        return Err(Error::new(
            ErrorKind::Unsupported { need: "a call of a function with #[distributed_lock]".into() },
            "this call did not reach a lock at its first step, so it has no key",
        ));
    }
    Ok(found)
}

fn single(mut keys: Vec<Key>) -> Result<Key> {
    match (keys.pop(), keys.is_empty()) {
        (Some(key), true) => Ok(key),
        _ => Err(Error::new(
            ErrorKind::Unsupported { need: "a function with one key".into() },
            "this function locks several keys; call `keys_of`",
        )),
    }
}
