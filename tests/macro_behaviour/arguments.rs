//! The arguments of a locked function are dropped under its lock, in the order of a plain function.

use std::future::{Future, pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use dlock::{Error, Outcome, distributed_lock};
use futures::FutureExt;

use crate::install;

/// The names of the values that were dropped, and whether each was dropped under the lock.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(&'static str, bool)>>>);

impl Log {
    fn value(&self, name: &'static str) -> Value {
        Value { id: 1, name, log: self.clone() }
    }

    /// The names, in order. All were dropped under the lock.
    fn names(&self) -> Vec<&'static str> {
        let dropped = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let outside: Vec<_> = dropped.iter().filter(|(_, locked)| !locked).collect();
        assert!(outside.is_empty(), "dropped without the lock: {outside:?} of {dropped:?}");
        dropped.into_iter().map(|(name, _)| name).collect()
    }

    /// The names, in order, wherever they were dropped.
    fn names_without_lock(&self) -> Vec<&'static str> {
        let dropped = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        dropped.into_iter().map(|(name, _)| name).collect()
    }
}

struct Value {
    id: u64,
    name: &'static str,
    log: Log,
}

impl Drop for Value {
    fn drop(&mut self) {
        let locked = dlock::current().is_some();
        self.log.0.lock().unwrap_or_else(PoisonError::into_inner).push((self.name, locked));
    }
}

struct Pair {
    first: Value,
    // It is there to be dropped.
    #[allow(dead_code, reason = "only its drop matters")]
    second: Value,
}

/// The same functions, once plain and once under each attribute, so that their order of drop can be compared.
macro_rules! functions {
    ($name:ident, $(#[$attribute:meta])*) => {
        mod $name {
            use super::*;

            $(#[$attribute])*
            pub(super) fn blocking(
                unnamed: Value, _out: Value, _: Value, (_a, _): (Value, Value), mut changed: Value,
                Pair { first, .. }: Pair, key: u64,
            ) -> Result<u64, Error> {
                let _local = changed.log.value("local");
                changed.id += 1;
                Ok(changed.id + first.id)
            }

            $(#[$attribute])*
            pub(super) async fn waits(
                unnamed: Value, _out: Value, _: Value, (_a, _): (Value, Value), mut changed: Value,
                Pair { first, .. }: Pair, key: u64,
            ) -> Result<u64, Error> {
                let _local = changed.log.value("local");
                tokio::task::yield_now().await;
                changed.id += 1;
                Ok(changed.id + first.id)
            }

            impl Pair {
                $(#[$attribute])*
                pub(super) fn $name(self, last: Value, key: u64) -> Result<u64, Error> {
                    let _local = self.first.log.value("local");
                    Ok(self.first.id)
                }
            }
        }
    };
}

functions!(plain, #[allow(unused_variables, reason = "the key of the locked ones is one of them")]);
functions!(locked, #[allow(unused_variables, reason = "as above")] #[distributed_lock(key = "arguments:<key>")]);
functions!(twice, #[allow(unused_variables, reason = "as above")] #[distributed_lock(keys = ["arguments:<key>", "b"], guard = _all)]);

/// Calls a function with values of these names.
macro_rules! call {
    ($function:path, $log:expr) => {{
        let value = |name| $log.value(name);
        let pair = Pair { first: value("pair.first"), second: value("pair.second") };
        $function(
            value("unnamed"),
            value("_out"),
            value("_"),
            (value("_a"), value("_a's rest")),
            value("changed"),
            pair,
            5,
        )
    }};
}

#[tokio::test]
async fn arguments_are_dropped_under_the_lock_in_the_order_of_a_plain_function() {
    install();
    let log = Log::default();
    assert_eq!(call!(plain::blocking, log).expect("a plain function"), 3);
    let expected = log.names_without_lock();
    assert_eq!(expected.len(), 9, "{expected:?}");
    assert_eq!(call!(locked::blocking, log).expect("a free lock"), 3);
    assert_eq!(log.names(), expected);
    assert_eq!(call!(twice::blocking, log).expect("free locks"), 3);
    assert_eq!(log.names(), expected);

    assert_eq!(call!(plain::waits, log).await.expect("a plain function"), 3);
    assert_eq!(log.names_without_lock(), expected);
    assert_eq!(call!(locked::waits, log).await.expect("a free lock"), 3);
    assert_eq!(log.names(), expected);
    assert_eq!(call!(twice::waits, log).await.expect("free locks"), 3);
    assert_eq!(log.names(), expected);
}

#[tokio::test]
async fn a_receiver_is_dropped_whole_under_the_lock() {
    install();
    let log = Log::default();
    let pair = || Pair { first: log.value("first"), second: log.value("second") };
    assert_eq!(pair().plain(log.value("last"), 6).expect("a plain method"), 1);
    let expected = log.names_without_lock();
    assert_eq!(expected, ["local", "last", "first", "second"]);
    assert_eq!(pair().locked(log.value("last"), 6).expect("a free lock"), 1);
    assert_eq!(log.names(), expected);
    assert_eq!(pair().twice(log.value("last"), 6).expect("free locks"), 1);
    assert_eq!(log.names(), expected);
}

/// A body that ends in the way that its argument says, and names none of its values.
#[distributed_lock(key = "arguments:<how>", timeout = "20ms", ttl = "30s")]
async fn ends(how: &str, begun: &AtomicBool, _out: Value, (_a, _): (Value, Value)) -> Outcome<()> {
    begun.store(true, Ordering::SeqCst);
    if how == "panic" {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
    pending().await
}

#[tokio::test]
async fn arguments_are_dropped_in_the_scope_of_the_lock_however_the_body_ends() {
    install();
    let log = Log::default();
    let begun = AtomicBool::new(false);
    let values = || (log.value("_out"), (log.value("_a"), log.value("rest")));

    let (out, pair) = values();
    assert!(matches!(ends("timeout", &begun, out, pair).await, Outcome::BodyTimeout(_)));
    assert_eq!(log.names(), ["_a", "rest", "_out"]);

    let (out, pair) = values();
    assert!(AssertUnwindSafe(ends("panic", &begun, out, pair)).catch_unwind().await.is_err());
    assert_eq!(log.names(), ["_a", "rest", "_out"]);

    let (out, pair) = values();
    let mut cancelled = Box::pin(ends("cancel", &begun, out, pair));
    begun.store(false, Ordering::SeqCst);
    poll_fn(|cx| {
        assert!(cancelled.poll_unpin(cx).is_pending());
        if begun.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    drop(cancelled);
    assert_eq!(log.names(), ["_a", "rest", "_out"]);
}

#[tokio::test]
async fn a_lost_body_drops_its_arguments_in_its_scope() {
    #[distributed_lock(key = "arguments:lost", ttl = "1s", renew = false)]
    async fn lost(_out: Value, _: Value) -> Outcome<()> {
        pending().await
    }
    install();
    let log = Log::default();
    assert!(matches!(lost(log.value("_out"), log.value("_")).await, Outcome::Lost(None, _)));
    assert_eq!(log.names(), ["_", "_out"]);
}

#[test]
fn a_panic_of_a_blocking_body_drops_the_arguments_under_the_lock() {
    #[distributed_lock(key = "arguments:blocking panic")]
    fn panics(_out: Value, job: Value) -> Result<(), Error> {
        let _ = job.id;
        std::panic::resume_unwind(Box::new("on purpose"));
    }
    install();
    let log = Log::default();
    let (out, job) = (log.value("_out"), log.value("job"));
    assert!(std::panic::catch_unwind(AssertUnwindSafe(|| panics(out, job))).is_err());
    assert_eq!(log.names(), ["job", "_out"]);
}

#[tokio::test]
async fn what_a_fallback_is_given_is_dropped_under_the_lock_if_the_body_runs() {
    #[distributed_lock(key = "arguments:fallback:<id>", wait = "none", on_busy = call(instead))]
    async fn calls(mut id: u64, job: Value, _out: Value) -> Result<u64, Error> {
        id += job.id;
        Ok(id)
    }
    fn instead(id: u64, job: Value, out: Value) -> Result<u64, Error> {
        Ok(id * 100 + job.id + out.id)
    }
    #[distributed_lock(key = "arguments:fallback:<id>")]
    async fn while_held(id: u64, work: impl Future<Output = Result<u64, Error>>) -> Result<u64, Error> {
        work.await
    }
    install();
    let log = Log::default();
    assert_eq!(calls(1, log.value("job"), log.value("out")).await.expect("a free lock"), 2);
    assert_eq!(log.names(), ["out", "job"]);
    let (job, out) = (log.value("job"), log.value("out"));
    let busy = async { tokio::spawn(calls(2, job, out)).await.expect("the task ends") };
    assert_eq!(while_held(2, busy).await.expect("a free lock"), 202);
}

#[async_trait]
trait Boxed {
    async fn boxed(self, _out: Value, _: Value, pair: (Value, Value)) -> Result<u64, Error>;
}

#[async_trait]
impl Boxed for Value {
    #[distributed_lock(key = "arguments:boxed:<self.id>")]
    async fn boxed(self, _out: Value, _: Value, (_a, _): (Value, Value)) -> Result<u64, Error> {
        tokio::task::yield_now().await;
        Ok(self.id)
    }
}

#[tokio::test]
async fn arguments_of_an_async_trait_are_dropped_under_the_lock() {
    install();
    let log = Log::default();
    let pair = (log.value("_a"), log.value("rest"));
    let done = log.value("self").boxed(log.value("_out"), log.value("_"), pair).await;
    assert_eq!(done.expect("a free lock"), 1);
    let mut names = log.names();
    names.sort_unstable();
    assert_eq!(names, ["_", "_a", "_out", "rest", "self"]);
}
