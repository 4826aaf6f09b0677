//! No body begins once its hold has ended, in none of the ways to lock. An observer that is slow at the grant lets the hold end.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dlock_runtime::{Error, ErrorKind, Event, Label, Leader, Lock, LossCause, Observer, Renew, Result};

use crate::run::{annotated, install};
use crate::support::{SECOND, World, test};

/// At each of its first grants it lets time pass.
struct Slow<F> {
    grants: AtomicUsize,
    passes: F,
}

impl<F: Fn() + Send + Sync + 'static> Observer for Slow<F> {
    fn on_event(&self, label: &Label, event: &Event) {
        let is_first =
            || self.grants.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if matches!(event, Event::Acquired { .. }) && label.template() == "slow" && is_first() {
            (self.passes)();
        }
    }
}

/// A world in which each of the first holds has ended when its caller gets it.
fn world(grants: usize) -> World {
    let world = World::new();
    let clock = world.clock.clone();
    world.registry.observe(Slow { grants: grants.into(), passes: move || clock.advance(60 * SECOND) });
    world
}

fn is_late<T>(ended: Result<T>, way: &str) {
    let kind = ended.map(drop).map_err(|error| error.kind().clone());
    assert_eq!(kind, Err(ErrorKind::Lost(LossCause::Deadline)), "{way}");
}

#[test]
fn no_body_begins_once_its_hold_has_ended() {
    test(async {
        let world = world(usize::MAX);
        let begun = Arc::new(AtomicUsize::new(0));
        let begins = || {
            let begun = begun.clone();
            move || begun.fetch_add(1, Ordering::SeqCst)
        };
        let lock = || -> Lock { world.lock("slow").renew(Renew::Off) };
        let begin = begins();
        is_late(lock().run(move |_| ready(begin())).await, "run");
        world.empty().await;
        let begin = begins();
        is_late(lock().run_fallible(move |_| ready(Ok::<_, Error>(begin()))).await, "run_fallible");
        world.empty().await;
        let begin = begins();
        is_late(lock().run_blocking(move |_| begin()), "run_blocking");
        world.empty().await;
        let guard = lock().acquire().await.unwrap();
        is_late(guard.check(), "a guard");
        is_late(guard.release().await, "the release of a guard");
        world.empty().await;
        let guards = world.registry.lock_all(["slow", "other"]).renew(Renew::Off).acquire().await;
        is_late(guards.and_then(|guards| guards.check()), "a list");
        world.empty().await;
        assert_eq!(begun.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_leader_whose_term_has_ended_campaigns_again_before_its_body_begins() {
    test(async {
        let world = world(2);
        let bodies = AtomicUsize::new(0);
        // Its closure counts before it gives a future.
        let leads = world.registry.elect("slow").lead(|leader: Leader| {
            bodies.fetch_add(1, Ordering::SeqCst);
            async move { leader.check() }
        });
        world.pass_until(SECOND / 10, leads).await.unwrap().unwrap();
        assert_eq!((bodies.into_inner(), world.events.count("Acquired"), world.events.count("Lost")), (1, 3, 2));
    });
}

/// On the machine's clock, as the global registry is.
#[test]
fn no_body_of_an_annotated_function_begins_once_its_hold_has_ended() {
    test(async {
        install();
        let ttl = Duration::from_secs(1);
        dlock_runtime::observe(Slow { grants: 1.into(), passes: move || std::thread::sleep(ttl + ttl / 10) });
        let mut begun = 0;
        let body = async {
            begun += 1;
            Ok(())
        };
        is_late(annotated("slow", ttl, body).await, "an annotated function");
        assert_eq!(begun, 0);
    });
}
