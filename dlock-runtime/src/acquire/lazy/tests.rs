use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dlock_contract::{Backend, ErrorKind};
use dlock_memory::Memory;
use futures::future::BoxFuture;
use tokio::sync::Notify;

use super::*;
use crate::{Key, Registry, Retry, Wait};

/// A store that is opened on demand.
#[derive(Default)]
struct OnDemand {
    openings: AtomicUsize,
    is_down: AtomicBool,
    /// Openings wait for it.
    may_open: Option<Notify>,
}

impl OnDemand {
    fn install(self, registry: &Registry) -> Arc<Self> {
        let shared = Arc::new(self);
        let store = shared.clone();
        let open = move |_| {
            let store = store.clone();
            async move {
                store.openings.fetch_add(1, Ordering::SeqCst);
                if let Some(may_open) = &store.may_open {
                    may_open.notified().await;
                }
                match store.is_down.load(Ordering::SeqCst) {
                    true => Err(Error::outage("nobody listens")),
                    false => Ok(Arc::new(Memory::new()) as Arc<dyn Backend>),
                }
            }
        };
        registry.install_lazy("main", open).unwrap();
        shared
    }

    fn openings(&self) -> usize {
        self.openings.load(Ordering::SeqCst)
    }
}

fn is_open(registry: &Registry) -> bool {
    matches!(registry.context().find(None).unwrap(), Found::Open(_))
}

#[tokio::test]
async fn a_store_is_opened_by_its_first_use_and_once() {
    let registry = Registry::new();
    let store = OnDemand::default().install(&registry);
    registry.verify().unwrap();
    assert_eq!((store.openings(), is_open(&registry)), (0, false));
    let locks = (0..20).map(|number| registry.lock(Key::text("job:").value(&number)).acquire());
    let guards = futures::future::try_join_all(locks).await.unwrap();
    assert_eq!((store.openings(), is_open(&registry)), (1, true));
    assert_eq!(guards.len(), 20);
}

/// A second opening would find no place in the registry, and the call would be told of a shutdown.
#[tokio::test]
async fn a_caller_that_found_a_store_unopened_gets_the_one_that_was_opened_meanwhile() {
    let registry = Registry::new();
    let store = OnDemand::default().install(&registry);
    let Found::Lazy(found) = registry.context().find(None).unwrap() else { panic!("it is open") };
    registry.lock("k").acquire().await.unwrap().release().await.unwrap();
    let opened = found.opened(registry.context(), Duration::from_secs(60)).await.unwrap();
    let Found::Open(first) = registry.context().find(None).unwrap() else { panic!("it is not open") };
    assert!(Arc::ptr_eq(&opened, &first));
    assert_eq!(store.openings(), 1);
}

#[test]
fn every_kind_of_call_opens_a_lazy_store() {
    type Enter = fn(&Registry) -> BoxFuture<'_, Result<()>>;
    let ways: [(&str, Enter); 8] = [
        ("acquire", |registry| registry.lock("k").acquire().map(|won| won.map(drop)).boxed()),
        ("several", |registry| registry.lock_all(["k", "l"]).acquire().map(|won| won.map(drop)).boxed()),
        ("blocking", |registry| async { registry.lock("k").acquire_blocking().map(drop) }.boxed()),
        ("several, blocking", |registry| async { registry.lock_all(["k"]).acquire_blocking().map(drop) }.boxed()),
        ("ready", |registry| registry.ready("main").map(|answer| answer.map(drop)).boxed()),
        ("holders", |registry| registry.lock("k").holders().map(|answer| answer.map(drop)).boxed()),
        ("locks", |registry| registry.locks().page().map(|answer| answer.map(drop)).boxed()),
        ("backend", |registry| registry.backend(None).map(|answer| answer.map(drop)).boxed()),
    ];
    for (name, enter) in ways {
        let registry = Registry::new();
        let store = OnDemand::default().install(&registry);
        futures::executor::block_on(enter(&registry)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((store.openings(), is_open(&registry)), (1, true), "{name}");
    }
}

#[tokio::test]
async fn an_opening_that_fails_is_a_failed_request_that_is_tried_again() {
    let registry = Registry::new();
    let store = OnDemand { is_down: true.into(), ..OnDemand::default() }.install(&registry);
    let error = registry.lock("k").try_acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.key(), error.backend()), (&ErrorKind::Outage, Some("k"), Some("main")));
    assert!(error.is_retryable() && error.message().contains("nobody listens"), "{error}");
    assert_eq!(store.openings(), 1, "a call that does not wait retries nothing");
    // A retryable failure is no finding.
    registry.verify().unwrap();
    let retries = Retry {
        times: 2,
        backoff: Some(dlock_contract::Backoff::new(Duration::from_millis(1), Duration::from_millis(2))),
    };
    let patient = || registry.lock("k").retry(retries).wait(Wait::Forever);
    let error = patient().acquire().await.unwrap_err();
    assert_eq!(store.openings(), 4, "{error}");
    store.is_down.store(false, Ordering::SeqCst);
    patient().acquire().await.unwrap().release().await.unwrap();
    assert_eq!(store.openings(), 5);
}

#[tokio::test]
async fn a_store_that_keeps_failing_is_not_asked_by_every_call() {
    let registry = Registry::new();
    let store = OnDemand { is_down: true.into(), ..OnDemand::default() }.install(&registry);
    let clock = registry.clock().clone();
    for calls in 1.. {
        let error = registry.lock("k").try_acquire().await.unwrap_err();
        if store.openings() < calls {
            break;
        }
        assert!(calls < 3000, "each call opens it: {error}");
        clock.sleep_until(clock.now().after(Duration::from_millis(10))).await;
    }
}

#[tokio::test]
async fn an_opening_goes_on_when_its_callers_are_gone() {
    let registry = Registry::new();
    let store = OnDemand { may_open: Some(Notify::new()), ..OnDemand::default() }.install(&registry);
    let lock = || registry.lock("k").ttl(Duration::from_millis(100)).try_acquire();
    let error = lock().await.unwrap_err();
    assert!(error.message().contains("was not open within 100ms"), "{error}");
    drop(lock());
    let again = lock().await.unwrap_err();
    assert_eq!(*again.kind(), ErrorKind::Outage);
    assert_eq!(store.openings(), 1);
    store.may_open.as_ref().unwrap().notify_one();
    while !is_open(&registry) {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.openings(), 1);
}

#[tokio::test]
async fn a_lazy_store_can_be_the_default_before_and_after_it_is_open() {
    let registry = Registry::new();
    let store = OnDemand::default().install(&registry);
    registry.install("other", Memory::new()).unwrap();
    let error = registry.lock("k").try_acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::BackendNotRegistered { known: vec!["main".into(), "other".into()] });
    registry.set_default("main").unwrap();
    let guard = registry.lock("k").acquire().await.unwrap();
    assert!(is_open(&registry) && store.openings() == 1);
    assert_eq!(*registry.lock("k").try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
    guard.release().await.unwrap();
    registry.install("main", Memory::new()).unwrap_err();
}

#[test]
fn a_refusal_for_good_is_found_by_verify_and_a_later_opening_mends_it() {
    let registry = Registry::new();
    let is_wrong = Arc::new(AtomicBool::new(true));
    let wrong = is_wrong.clone();
    let open = move |_| {
        let is_wrong = wrong.load(Ordering::SeqCst);
        std::future::ready(match is_wrong {
            true => Err(Error::new(ErrorKind::SchemaMismatch, "the table has no key")),
            false => Ok(Arc::new(Memory::new()) as Arc<dyn Backend>),
        })
    };
    registry.install_lazy("main", open).unwrap();
    let found = |registry: &Registry| registry.context().opening_error(Some("main"));
    assert!(found(&registry).is_none());
    let error = registry.lock("k").acquire_blocking().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SchemaMismatch);
    assert_eq!(*found(&registry).unwrap().kind(), ErrorKind::SchemaMismatch);
    is_wrong.store(false, Ordering::SeqCst);
    drop(registry.lock("k").acquire_blocking().unwrap());
    assert!(found(&registry).is_none());
}
