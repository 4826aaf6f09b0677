//! The options of an annotated function, on the memory store. `options` has their behaviour on each store.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dlock::backends::memory::Memory;
use dlock::{Error, ErrorKind, Fence, Held, Key, LockKey, Outcome, distributed_lock, scheduled_lock};

/// One store under two names for all tests; each of them has keys of its own.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for name in ["memory", "other"] {
            dlock::install(name, Memory::new()).expect("a free name");
        }
        dlock::set_default("memory").expect("an installed name");
    });
}

/// A key in the default namespace.
fn full(key: Key) -> LockKey {
    LockKey::new("default", key).expect("a short key")
}

#[tokio::test]
async fn the_guard_and_the_token_are_variables_of_the_body() {
    #[distributed_lock(key = "guard:<id>", guard = held, fence = token)]
    async fn both(id: u8) -> Result<(String, Fence), Error> {
        held.check()?;
        assert_eq!(token.get(), held.fence()?.get());
        Ok((held.key().to_string(), token))
    }
    #[distributed_lock(key = "guard:sync", guard = held, fence = held_token)]
    fn sync() -> Result<bool, Error> {
        Ok(held.fence()?.get() == held_token.get())
    }
    install();
    let (key, first) = both(1).await.expect("a free lock");
    assert!(key.ends_with(":guard:<1>"), "{key}");
    assert!(both(1).await.expect("a free lock").1.get() > first.get());
    assert!(sync().expect("a free lock"));
}

#[tokio::test]
async fn several_keys_are_taken_once_each_and_told_as_written() {
    #[distributed_lock(keys = ["several:<to>", "several:<from>", "shop:<from>:<ids..>"], guard = held)]
    async fn all(from: u8, to: u8, ids: Vec<u8>) -> Result<Vec<LockKey>, Error> {
        drop(ids);
        Ok(held.iter().map(|held: &Held| held.key().clone()).collect())
    }
    install();
    let keys = all(1, 2, vec![9, 3, 9]).await.expect("free locks");
    let several = |id: u8| full(Key::text("several:").value(&id));
    let shop = |id: u8| full(Key::text("shop:").value(&1_u8).and_text(":").value(&id));
    assert_eq!(keys, [several(2), several(1), shop(9), shop(3), shop(9)]);
    assert_eq!(all(1, 1, vec![]).await.expect("free locks").len(), 2);
}

#[tokio::test]
async fn a_call_with_an_empty_list_of_keys_runs_nothing() {
    #[distributed_lock(keys = "empty:<ids..>")]
    async fn each(ids: &[u8]) -> Result<(), Error> {
        Ok(())
    }
    install();
    assert!(matches!(each(&[]).await.unwrap_err().kind(), ErrorKind::ConfigInvalid { field } if field == "keys"));
}

#[tokio::test]
async fn expressions_of_options_are_evaluated_at_each_call() {
    struct Tenant {
        name: String,
        store: String,
        ttl: Duration,
    }
    #[distributed_lock(
        key = Key::text("tenant:").value(&tenant.name.to_lowercase()),
        backend = tenant.store,
        ttl = tenant.ttl * 2,
        wait = Duration::from_millis(5),
        guard = held
    )]
    async fn bill(tenant: Tenant) -> Result<(LockKey, String, Duration), Error> {
        drop(tenant);
        Ok((held.key().clone(), held.backend().to_owned(), held.granted()))
    }
    install();
    let tenant = Tenant { name: "Ada".into(), store: "other".into(), ttl: Duration::from_secs(3) };
    let (key, backend, ttl) = bill(tenant).await.expect("a free lock");
    assert_eq!(key, full(Key::text("tenant:").value("ada")));
    assert_eq!((backend.as_str(), ttl), ("other", Duration::from_secs(6)));
    let tenant = Tenant { name: "Ada".into(), store: "nowhere".into(), ttl: Duration::from_secs(3) };
    assert!(matches!(bill(tenant).await.unwrap_err().kind(), ErrorKind::BackendNotRegistered { .. }));
}

struct Cache {
    id: u8,
}

#[async_trait]
trait Rebuild {
    async fn rebuild(&mut self, page: String) -> Result<String, Error>;
    async fn stale(&mut self, page: String) -> Result<String, Error>;
}

#[async_trait]
impl Rebuild for Cache {
    #[distributed_lock(key = "boxed:<self.id>", wait = "none", on_busy = call(Self::stale))]
    async fn rebuild(&mut self, page: String) -> Result<String, Error> {
        Ok(format!("fresh {page}"))
    }
    async fn stale(&mut self, page: String) -> Result<String, Error> {
        Ok(format!("stale {page}"))
    }
}

impl Cache {
    #[distributed_lock(key = "method:<self.id>", wait = "none", on_busy = call(Self::keep))]
    fn blocking(&mut self, page: &str) -> Result<&mut u8, Error> {
        self.id += u8::try_from(page.len()).expect("a short page");
        Ok(&mut self.id)
    }

    fn keep(&mut self, page: &str) -> Result<&mut u8, Error> {
        drop(page.to_owned());
        Ok(&mut self.id)
    }
}

#[tokio::test]
async fn another_function_is_called_while_others_hold_the_lock() {
    install();
    let mut cache = Cache { id: 1 };
    assert_eq!(cache.rebuild("a".into()).await.expect("a free lock"), "fresh a");
    let guard = dlock::lock(Key::text("boxed:").value(&1_u8)).acquire().await.expect("a free lock");
    assert_eq!(cache.rebuild("a".into()).await.expect("a fallback"), "stale a");
    guard.release().await.expect("held to the end");

    let guard = dlock::lock(Key::text("method:").value(&1_u8)).acquire().await.expect("a free lock");
    assert_eq!(*cache.blocking("abc").expect("a fallback"), 1);
    guard.release().await.expect("held to the end");
    assert_eq!(*cache.blocking("abc").expect("a free lock"), 4);
}

#[tokio::test]
async fn a_function_can_be_skipped_in_every_way_that_its_type_can_say() {
    #[distributed_lock(key = "skip", wait = "none", on_busy = skip)]
    async fn option() -> Option<u8> {
        Some(1)
    }
    #[distributed_lock(key = "skip", wait = "none", on_busy = skip)]
    async fn result() -> Result<Option<u8>, Error> {
        Ok(Some(1))
    }
    #[distributed_lock(key = "skip", wait = "none", on_busy = skip)]
    fn nothing(runs: &AtomicU32) {
        runs.fetch_add(1, Ordering::SeqCst);
    }
    #[distributed_lock(key = "skip", wait = "none", on_busy = skip)]
    async fn outcome() -> Outcome<u8> {
        1.into()
    }
    #[distributed_lock(key = "skip", wait = "none", on_outage = skip)]
    async fn only_in_an_outage() -> Result<(), Error> {
        Ok(())
    }
    install();
    let runs = AtomicU32::new(0);
    let guard = dlock::lock("skip").acquire().await.expect("a free lock");
    assert_eq!(option().await, None);
    assert_eq!(result().await.expect("no error"), None);
    nothing(&runs);
    assert!(matches!(outcome().await, Outcome::Busy(_)));
    assert!(only_in_an_outage().await.unwrap_err().is_contention());
    guard.release().await.expect("held to the end");
    assert_eq!(option().await, Some(1));
    assert_eq!(result().await.expect("no error"), Some(1));
    nothing(&runs);
    assert!(matches!(outcome().await, Outcome::Ran(1)));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_scheduled_task_runs_on_one_node() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    #[scheduled_lock(name = "task:<region>", at_most = "30s", at_least = "10s")]
    async fn task(region: &str) {
        RUNS.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
    }
    #[scheduled_lock(name = "strict", at_most = Duration::from_secs(30), at_least = "10s", on_busy = error)]
    fn strict() -> Result<(), Error> {
        Ok(())
    }
    install();
    tokio::join!(task("north"), task("north"), task("south"));
    task("north").await;
    assert_eq!(RUNS.load(Ordering::SeqCst), 2);
    strict().expect("a free lock");
    assert!(strict().unwrap_err().is_contention());
}

#[tokio::test]
async fn the_last_success_of_a_scheduled_task_is_kept() {
    type Failure = Box<dyn std::error::Error + Send + Sync>;
    #[scheduled_lock(name = "kept:async", at_most = "30s")]
    async fn task(fails: bool) -> Result<(), Failure> {
        if fails { Err("on purpose".into()) } else { Ok(()) }
    }
    #[scheduled_lock(name = "kept:sync", at_most = "30s")]
    fn blocking() {}
    install();
    assert!(task(true).await.is_err());
    assert_eq!(dlock::last_success("kept:async").await.expect("an answer"), None);
    task(false).await.expect("a free lock");
    let kept = dlock::last_success("kept:async").await.expect("an answer").expect("a success");
    assert_eq!(kept.note.pid(), Some(std::process::id()));
    assert!(task(true).await.is_err());
    assert_eq!(dlock::last_success("kept:async").await.expect("an answer"), Some(kept));
    blocking();
    assert!(dlock::last_success("kept:sync").await.expect("an answer").is_some());
}

mod renamed {
    mod lib {
        pub(crate) use ::dlock as other;
    }

    #[lib::other::distributed_lock(key = "renamed", crate = lib::other, guard = held)]
    async fn by_path() -> Result<bool, lib::other::Error> {
        Ok(held.check().is_ok())
    }

    #[lib::other::scheduled_lock(name = "renamed:task", at_most = "5s", crate = "lib::other")]
    fn by_text() {}

    #[lib::other::optimistic(crate = crate::renamed::lib::other)]
    async fn without_a_lock() -> Result<(), lib::other::Error> {
        Ok(())
    }

    #[tokio::test]
    async fn the_runtime_may_have_another_name() {
        super::install();
        assert!(by_path().await.expect("a free lock"));
        by_text();
        assert!(without_a_lock().await.is_ok());
    }
}

mod size {
    use super::*;

    type Large = [u8; 4096];

    async fn work(bytes: &Large) -> u8 {
        tokio::task::yield_now().await;
        bytes[0]
    }

    async fn moved(_id: u64, bytes: Large) -> Result<u8, Error> {
        Ok(work(&bytes).await)
    }

    async fn borrowed(_id: u64, bytes: &Large) -> Result<u8, Error> {
        Ok(work(bytes).await)
    }

    #[distributed_lock(key = "size:<id>")]
    async fn locked(id: u64, bytes: Large) -> Result<u8, Error> {
        Ok(work(&bytes).await)
    }

    #[distributed_lock(key = "size:<id>", guard = _held, fence = _token)]
    async fn with_guard(id: u64, bytes: Large) -> Result<u8, Error> {
        Ok(work(&bytes).await)
    }

    #[distributed_lock(keys = ["size:<id>", "other:<id>"], guard = _held)]
    async fn with_keys(id: u64, bytes: Large) -> Result<u8, Error> {
        Ok(work(&bytes).await)
    }

    #[distributed_lock(key = "size:<id>", on_busy = call(moved))]
    async fn with_call(id: u64, bytes: Large) -> Result<u8, Error> {
        Ok(work(&bytes).await)
    }

    #[distributed_lock(key = "size:<id>", on_busy = call(borrowed))]
    async fn with_call_borrowed(id: u64, bytes: &Large) -> Result<u8, Error> {
        Ok(work(bytes).await)
    }

    #[distributed_lock(key = "size:<id>")]
    async fn locked_borrowed(id: u64, bytes: &Large) -> Result<u8, Error> {
        Ok(work(bytes).await)
    }

    #[test]
    fn neither_the_lock_nor_an_option_makes_the_future_large() {
        let bytes = [0; 4096];
        let most = size_of_val(&moved(1, bytes)) + 256;
        for (what, size) in [
            ("no option", size_of_val(&locked(1, bytes))),
            ("guard", size_of_val(&with_guard(1, bytes))),
            ("keys", size_of_val(&with_keys(1, bytes))),
            ("call", size_of_val(&with_call(1, bytes))),
        ] {
            assert!(size <= most, "{what}: {size} bytes instead of {most}");
        }
        let most = size_of_val(&borrowed(1, &bytes)) + 256;
        for (what, size) in [
            ("borrowed", size_of_val(&locked_borrowed(1, &bytes))),
            ("call", size_of_val(&with_call_borrowed(1, &bytes))),
        ] {
            assert!(size <= most, "{what}: {size} bytes instead of {most}");
        }
    }
}
