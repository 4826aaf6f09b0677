//! The behaviour of annotated functions, on the memory store.

use std::cell::RefCell;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use async_trait::async_trait;
use dlock::backends::memory::Memory;
use dlock::{Error, KeyPart, KeyWriter, distributed_lock};
use futures::FutureExt;
use tracing::instrument;

mod arguments;

#[derive(Debug)]
enum Failure {
    Lock,
    Body,
}

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Failure::Lock
    }
}

/// One store for all tests; each of them has keys of its own.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let installed = dlock::install("memory", Memory::new()).and_then(|()| dlock::set_default("memory"));
        assert!(installed.is_ok(), "{installed:?}");
    });
}

/// Whether nobody holds the key. Asked from a separate task, which has no enclosing call.
async fn is_free(id: &'static str) -> bool {
    #[distributed_lock(key = "stock:<id>", wait = "none")]
    async fn take(id: &str) -> Result<(), Error> {
        Ok(())
    }
    matches!(tokio::spawn(take(id)).await, Ok(Ok(())))
}

/// The lock of a caller that is gone is released in the background, long before its ttl of 30 s.
async fn becomes_free(id: &str) -> bool {
    #[distributed_lock(key = "stock:<id>", wait = "10s")]
    async fn take(id: &str) -> Result<(), Error> {
        Ok(())
    }
    take(id).await.is_ok()
}

#[tokio::test]
async fn the_lock_is_held_while_the_body_runs() {
    #[distributed_lock(key = "stock:<id>")]
    async fn check(id: &'static str) -> Result<bool, Error> {
        Ok(is_free(id).await)
    }
    install();
    assert!(is_free("held").await);
    assert!(!check("held").await.expect("a free lock"));
    assert!(is_free("held").await);
}

#[tokio::test]
async fn every_way_out_of_a_body_releases_the_lock() {
    #[distributed_lock(key = "stock:<id>")]
    async fn leave(id: &str, how: &str) -> Result<u32, Failure> {
        if how == "return" {
            return Ok(1);
        }
        if how == "panic" {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        if how == "wait" {
            std::future::pending::<()>().await;
        }
        how.parse::<u32>().map_err(|_| Failure::Body)?;
        Ok(2)
    }
    install();
    assert!(matches!(leave("ways", "return").await, Ok(1)));
    assert!(is_free("ways").await);
    assert!(matches!(leave("ways", "5").await, Ok(2)));
    assert!(is_free("ways").await);
    assert!(matches!(leave("ways", "five").await, Err(Failure::Body)));
    assert!(is_free("ways").await);
    assert!(AssertUnwindSafe(leave("ways", "panic")).catch_unwind().await.is_err());
    assert!(becomes_free("ways").await);

    let mut dropped = Box::pin(leave("ways", "wait"));
    while is_free("ways").await {
        assert!(futures::poll!(&mut dropped).is_pending());
    }
    drop(dropped);
    assert!(becomes_free("ways").await);
}

#[tokio::test]
async fn a_failed_lock_becomes_the_error_of_the_function() {
    #[distributed_lock(key = "stock:<id>", wait = "none")]
    async fn inner(id: &str) -> Result<(), Failure> {
        Err(Failure::Body)
    }
    #[distributed_lock(key = "stock:<id>")]
    async fn outer(id: &'static str) -> Result<bool, Error> {
        let inner = tokio::spawn(inner(id)).await.expect("the task ends");
        Ok(matches!(inner, Err(Failure::Lock)))
    }
    install();
    assert!(outer("failed").await.expect("a free lock"));
}

/// Counts how often it is put into a key.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl KeyPart for Counted {
    fn encode(&self, writer: &mut KeyWriter<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        writer.text("counted");
    }
}

#[tokio::test]
async fn the_key_is_made_once_and_before_the_body() {
    #[distributed_lock(key = "once:<part>")]
    async fn made(part: Counted) -> Result<usize, Error> {
        tokio::task::yield_now().await;
        Ok(part.count())
    }
    install();
    let part = Counted::default();
    let future = made(part.clone());
    assert_eq!(part.count(), 0, "nothing happens before the first poll");
    assert_eq!(future.await.expect("a free lock"), 1);
    assert_eq!(part.count(), 1);
}

#[tokio::test]
async fn neighbouring_values_in_a_key_stay_apart() {
    #[distributed_lock(key = "<a><b>", wait = "none")]
    async fn take<F: Future<Output = bool>>(a: &str, b: &str, meanwhile: F) -> Result<bool, Error> {
        Ok(meanwhile.await)
    }
    install();
    let other_key = async { tokio::spawn(take("ab", "c", async { true })).await.expect("the task ends").is_ok() };
    assert!(take("a", "bc", other_key).await.expect("a free lock"));
    let same_key = async { tokio::spawn(take("a", "bc", async { true })).await.expect("the task ends").is_ok() };
    assert!(!take("a", "bc", same_key).await.expect("a free lock"));
}

#[tokio::test]
async fn of_two_attributes_the_lower_lock_is_taken_first() {
    #[distributed_lock(key = "upper:<upper>")]
    #[distributed_lock(key = "stock:<lower>", wait = "none")]
    async fn both(upper: Counted, lower: &'static str) -> Result<bool, Error> {
        Ok(is_free(lower).await)
    }
    #[distributed_lock(key = "stock:<lower>")]
    async fn while_held(upper: Counted, lower: &'static str) -> Result<bool, Error> {
        Ok(tokio::spawn(both(upper, lower)).await.expect("the task ends").is_ok())
    }
    install();
    let upper = Counted::default();
    assert!(!while_held(upper.clone(), "order").await.expect("a free lock"));
    assert_eq!(upper.count(), 0, "the upper lock is not even thought of while the lower one is waited for");
    assert!(!both(upper.clone(), "order").await.expect("two free locks"), "the lower one is held inside");
    assert_eq!(upper.count(), 1);
}

struct Shop {
    id: &'static str,
}

impl Shop {
    #[distributed_lock(key = "stock:<self.id>")]
    async fn method(&self) -> Result<bool, Error> {
        Ok(is_free(self.id).await)
    }
}

#[async_trait]
trait Restock {
    async fn boxed(&self) -> Result<bool, Failure>;
    async fn boxed_and_traced(&self) -> Result<bool, Failure>;
    async fn traced_and_boxed(&self) -> Result<bool, Failure>;
}

#[async_trait]
impl Restock for Shop {
    #[distributed_lock(key = "stock:<self.id>")]
    async fn boxed(&self) -> Result<bool, Failure> {
        Ok(is_free(self.id).await)
    }

    #[distributed_lock(key = "stock:<self.id>")]
    #[instrument(skip(self))]
    async fn boxed_and_traced(&self) -> Result<bool, Failure> {
        Ok(is_free(self.id).await)
    }

    #[instrument(skip(self))]
    #[distributed_lock(key = "stock:<self.id>")]
    async fn traced_and_boxed(&self) -> Result<bool, Failure> {
        Ok(is_free(self.id).await)
    }
}

#[tokio::test]
async fn methods_are_locked_in_every_shape() {
    install();
    let shop = Shop { id: "methods" };
    assert!(!shop.method().await.expect("a free lock"));
    assert!(!shop.boxed().await.expect("a free lock"));
    assert!(!shop.boxed_and_traced().await.expect("a free lock"));
    assert!(!shop.traced_and_boxed().await.expect("a free lock"));
    assert!(is_free("methods").await);
}

#[tokio::test]
async fn a_body_may_stay_on_its_thread() {
    #[distributed_lock(key = "stock:<id>")]
    async fn local(id: &'static str, seen: Rc<RefCell<Vec<bool>>>) -> Result<(), Error> {
        let free = is_free(id).await;
        seen.borrow_mut().push(free);
        Ok(())
    }
    install();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let on_this_thread = tokio::task::LocalSet::new();
    let task = on_this_thread.spawn_local(local("thread", Rc::clone(&seen)));
    on_this_thread.await;
    task.await.expect("the task ends").expect("a free lock");
    assert_eq!(*seen.borrow(), [false]);
}

#[test]
fn the_future_can_go_to_another_thread() {
    fn assert_send(_: impl Send) {}
    assert_send(Shop { id: "send" }.method());
    assert_send(Shop { id: "send" }.boxed());
}
