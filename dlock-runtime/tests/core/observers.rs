//! Observers: the events that they get, and that they can do no harm.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dlock_runtime::{Event, Key, Label, Mode, Observer, Wait};
use tracing::Level;

use crate::acquire::neighbours;
use crate::support::{LONG, Op, SECOND, Step, World, full, held_and_awaited, poll_once, test, until};
use crate::user_code::layer::{Does, Layer, Line};

#[test]
fn every_event_comes_with_the_template_and_never_with_a_key() {
    test(async {
        let (world, stranger) = neighbours();
        let key = || Key::text("stock:").value("secret42");
        let lock = || world.registry.lock(key()).name("shop::deduct");
        lock().acquire().await.unwrap().release().await.unwrap();
        let held = stranger.registry.lock(key()).acquire().await.unwrap();
        lock().try_acquire().await.unwrap_err();
        world.pass_until(SECOND, lock().wait(Wait::UpTo(SECOND)).acquire()).await.unwrap_err();
        held.release().await.unwrap();
        let guard = lock().acquire().await.unwrap();
        for op in [Op::Renew, Op::Release] {
            world.store.always(op, Step::Fail);
        }
        world.pass(31 * SECOND).await;
        drop(guard);
        world.events.expect("ReleaseFailed", 1).await;
        let names = world.events.names();
        for name in ["Acquired", "Released", "Busy", "TimedOut", "RenewalFailed", "NearExpiry", "Lost", "ReleaseFailed"]
        {
            assert!(names.iter().any(|seen| seen == name), "{name} in {names:?}");
        }
        for (label, event) in world.events.all() {
            assert_eq!(label, "shop::deduct [stock:<>] on m");
            assert!(!format!("{event:?}").contains("secret42"), "{event:?}");
        }
    });
}

/// How often each event came, and what the pairs must say.
#[derive(Clone, Default)]
struct Tally(Arc<Mutex<BTreeMap<String, i64>>>);

impl Observer for Tally {
    fn on_event(&self, label: &Label, event: &Event) {
        let name = format!("{event:?}").split([' ', '{', '(']).next().unwrap().to_owned();
        let mut counts = self.0.lock().unwrap();
        *counts.entry(name).or_default() += 1;
        assert_eq!((label.store(), label.mode()), ("memory", Mode::Exclusive));
    }
}

impl Tally {
    fn of(&self, names: &[&str]) -> i64 {
        let counts = self.0.lock().unwrap();
        names.iter().filter_map(|name| counts.get(*name)).sum()
    }
}

#[test]
fn each_call_has_one_begin_and_one_outcome_and_each_hold_one_end() {
    test(async {
        let (world, stranger) = neighbours();
        let tally = Tally::default();
        world.registry.observe(tally.clone());
        let lock = || world.lock("k");
        lock().acquire().await.unwrap().release().await.unwrap();
        drop(lock().acquire().await.unwrap());
        world.empty().await;
        let held = stranger.lock("k").acquire().await.unwrap();
        lock().try_acquire().await.unwrap_err();
        world.pass_until(SECOND, lock().wait(Wait::UpTo(SECOND)).acquire()).await.unwrap_err();
        // Given up: before its first poll it has asked for nothing.
        drop(lock().wait(LONG).acquire());
        let mut waiting = Box::pin(lock().wait(LONG).acquire());
        assert!(poll_once(&mut waiting).is_pending());
        drop(waiting);
        held.release().await.unwrap();
        // Joined, and refused as a call that would wait for itself.
        lock().run(async |_| lock().reentrant(true).run(|_| async {}).await.unwrap()).await.unwrap();
        // Of several keys each has a hold.
        world.registry.lock_all(["a", "b"]).acquire().await.unwrap().release().await.unwrap();
        let guard = lock().acquire().await.unwrap();
        world.pass(11 * SECOND).await;
        world.store.always(Op::Renew, Step::Fail);
        world.pass(31 * SECOND).await;
        assert!(guard.check().unwrap_err().is_lost());
        drop(guard);
        world.store.always(Op::Acquire, Step::Fail);
        lock().try_acquire().await.unwrap_err();
        until("the observers' thread has sent all", || tally.of(&["Lost"]) == 1 && tally.of(&["Released"]) == 5).await;
        let counts = tally.0.lock().unwrap().clone();
        let outcomes = ["Acquired", "Busy", "TimedOut", "Failed", "GivenUp"];
        assert_eq!(outcomes.map(|name| tally.of(&[name])), [6, 1, 1, 1, 1], "{counts:?}");
        assert_eq!(tally.of(&["Asked"]), tally.of(&outcomes), "{counts:?}");
        assert_eq!(tally.of(&["Acquired"]), tally.of(&["Released", "Lost", "NotSettled"]), "{counts:?}");
        assert!(tally.of(&["Renewed"]) > 0, "{counts:?}");
    });
}

struct Panics;

impl Observer for Panics {
    fn on_event(&self, _: &Label, event: &Event) {
        panic!("at {event:?}");
    }
}

#[test]
fn an_observer_that_panics_fails_no_lock_and_is_counted() {
    test(async {
        let world = World::new();
        world.registry.observe(Panics);
        world.lock("k").run(|_| async {}).await.unwrap();
        drop(world.lock("k").acquire().await.unwrap());
        world.empty().await;
        until("the observers' thread has sent them", || world.registry.observer_trouble() == (6, 0)).await;
        world.lock("k").acquire().await.unwrap().release().await.unwrap();
    });
}

/// Blocks at events of our own thread. A caller's own event blocks only that caller.
struct Blocks(Mutex<std::sync::mpsc::Receiver<()>>, Arc<AtomicUsize>);

impl Observer for Blocks {
    fn on_event(&self, _: &Label, event: &Event) {
        if let Event::RenewalFailed { .. } = event {
            self.1.fetch_add(1, Ordering::SeqCst);
            let _ = self.0.lock().unwrap().recv();
        }
    }
}

#[test]
fn an_observer_that_blocks_delays_no_renewal_and_no_loss() {
    test(async {
        let world = World::new();
        let (go, wait) = std::sync::mpsc::channel();
        let blocked = Arc::new(AtomicUsize::new(0));
        world.registry.observe(Blocks(Mutex::new(wait), blocked.clone()));
        let kept = world.lock("kept").acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Fail]);
        world.pass(11 * SECOND).await;
        until("the observer blocks", || blocked.load(Ordering::SeqCst) == 1).await;
        let lost = world.lock("lost").acquire().await.unwrap();
        world.memory.forget(&full("lost"));
        world.pass(120 * SECOND).await;
        kept.check().unwrap();
        lost.check().unwrap_err();
        kept.release().await.unwrap();
        drop(go);
    });
}

/// Takes a lock itself, the blocking way, each time a lock begins or ends.
struct Locks(Mutex<std::sync::mpsc::Sender<(std::thread::ThreadId, String)>>, dlock_runtime::Registry);

impl Observer for Locks {
    fn on_event(&self, label: &Label, event: &Event) {
        if label.name() != "inner" {
            let event = format!("{event:?}").split(' ').next().unwrap().to_owned();
            self.0.lock().unwrap().send((std::thread::current().id(), event)).unwrap();
            self.1.lock("inner").name("inner").run_blocking(|_| ()).unwrap();
        }
    }
}

#[test]
fn a_blocking_caller_hears_its_events_on_its_own_thread_and_may_lock_there() {
    let world = World::with(&dlock_runtime::Clock::system(), |_| {});
    let (registry, others) = (world.registry.clone(), world.lock("held").acquire_blocking().unwrap());
    let (seen, told) = std::sync::mpsc::channel();
    registry.observe(Locks(Mutex::new(seen), registry.clone()));
    let caller = std::thread::spawn(move || {
        registry.lock("k").run_blocking(|_| ()).unwrap();
        registry.lock_all(["a", "b"]).acquire_blocking().unwrap().release_blocking().unwrap();
        registry.lock("held").wait(Wait::None).acquire_blocking().map(drop).unwrap_err();
    });
    let id = caller.thread().id();
    // Not by `join`, which would wait for ever where our thread waits for itself.
    let all: Vec<_> = (0..11).map_while(|_| told.recv_timeout(20 * SECOND).ok()).collect();
    let names: Vec<_> = all.iter().map(|(_, name)| name.as_str()).collect();
    let one = ["Asked", "Acquired", "Released", "Asked", "Acquired"];
    let list = ["Asked", "Acquired", "Released", "Released", "Asked", "Busy"];
    assert_eq!(names, [&one[..], &list].concat());
    assert!(all.iter().all(|(thread, _)| *thread == id), "{all:?}, the caller was {id:?}");
    caller.join().unwrap();
    drop(others);
}

/// How many events it was told that it lacks.
struct Dropped(Arc<AtomicU64>);

impl Observer for Dropped {
    fn on_event(&self, _: &Label, _: &Event) {}

    fn on_dropped(&self, events: u64) {
        self.0.fetch_add(events, Ordering::SeqCst);
    }
}

#[test]
fn events_that_a_blocked_observer_misses_are_counted_and_bounded() {
    test(async {
        let world = World::new();
        // The lines without a store.
        Layer::meets("", Does::Nothing);
        let (go, wait) = std::sync::mpsc::channel();
        world.registry.observe(Blocks(Mutex::new(wait), Arc::default()));
        let told = Arc::<AtomicU64>::default();
        world.registry.observe(Dropped(told.clone()));
        world.store.always(Op::Renew, Step::Fail);
        let guards: Vec<_> =
            futures::future::join_all((0..400).map(|id| world.registry.lock(Key::new().value(&id)).acquire())).await;
        let pass = async {
            while world.registry.observer_trouble().1 == 0 {
                world.pass(SECOND).await;
            }
        };
        pass.await;
        assert_eq!(told.load(Ordering::SeqCst), 0, "the observers' thread is blocked");
        drop(go);
        drop(guards);
        let all_are_told = || told.load(Ordering::SeqCst) == world.registry.observer_trouble().1;
        until("the observers hear how many events they lack", all_are_told).await;
        let is_warning = |(line, _, level): &Line| *level == Level::WARN && line.contains("has left out events");
        until("a line about it", || Layer::lines("").iter().any(is_warning)).await;
    });
}

#[test]
fn an_alert_on_a_timeout_can_be_written() {
    struct Alert(Arc<Mutex<Vec<String>>>);
    impl Observer for Alert {
        fn on_event(&self, label: &Label, event: &Event) {
            if let Event::TimedOut { waited, attempts } = event {
                let text = format!("{} {} {} {}", label.name(), label.template(), waited.as_secs(), attempts);
                self.0.lock().unwrap().push(text);
            }
        }
    }
    test(async {
        let world = World::new();
        let alerts = Arc::new(Mutex::new(Vec::new()));
        world.registry.observe(Alert(alerts.clone()));
        let (_held, _stands) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        let asked = world.lock("k").name("n").wait(Wait::UpTo(3 * SECOND)).acquire();
        world.pass_until(SECOND, asked).await.unwrap_err();
        assert_eq!(*alerts.lock().unwrap(), ["n k 3 0"]);
    });
}
