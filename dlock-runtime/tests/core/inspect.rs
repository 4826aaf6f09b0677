//! Inspection: holders, listings, and the news of a broken hold.

use dlock_memory::Memory;
use dlock_runtime::{Clock, ErrorKind, HoldId, Key, LossCause, MAX_KEY_BYTES, Registry, Wait};

use crate::support::{MS, Op, SECOND, Step, World, calm, full, held_and_awaited, test};

pub(crate) async fn id_of(world: &World, key: &'static str) -> HoldId {
    world.lock(key).holders().await.unwrap().holders[0].id.unwrap()
}

/// Another one with the same store. Neighbours of a holder in its process wait for it, and not for the store.
pub(crate) fn another_process(world: &World) -> Registry {
    let registry = Registry::with_clock(&world.clock);
    registry.install("m", world.memory.clone()).unwrap();
    registry
}

#[test]
fn a_broken_hold_is_lost_at_its_next_renewal_and_its_error_says_who_broke_it() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        let id = id_of(&world, "k").await;
        assert!(world.lock("k").break_hold(id).by("alice").because("web-3 hangs").await.unwrap());
        let next = another_process(&world).lock("k").try_acquire().await.unwrap();
        next.release().await.unwrap();
        guard.check().unwrap();
        world.pass(10 * SECOND).await;
        let error = guard.check().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Broken));
        let text = error.to_string();
        assert!(text.contains("alice@") && text.contains("web-3 hangs"), "{text}");
        world.events.expect("Lost", 1).await;
        assert_eq!(guard.release().await.unwrap_err().to_string(), text);
    });
}

#[test]
fn a_hold_that_is_released_after_it_was_broken_says_who_broke_it() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        assert!(world.lock("k").break_hold(id_of(&world, "k").await).because("a test").await.unwrap());
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Broken));
        // No operator was named, so the record has the host and the process.
        let pid = format!(":{}, at ", std::process::id());
        assert!(error.to_string().contains(&pid) && error.to_string().contains(": a test;"), "{error}");
    });
}

#[test]
fn a_hold_that_asks_for_confirmation_hears_who_broke_it() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        assert!(world.lock("k").break_hold(id_of(&world, "k").await).by("alice").await.unwrap());
        let error = guard.confirm().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Broken));
        assert!(error.to_string().contains("alice@"), "{error}");
    });
}

/// The renewal is given up after a third of the ttl, and its answer comes after that.
#[test]
fn a_hold_that_hears_late_of_its_loss_hears_who_broke_it() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        assert!(world.lock("k").break_hold(id_of(&world, "k").await).by("alice").await.unwrap());
        world.store.always(Op::Renew, Step::Late(8 * SECOND));
        world.pass(25 * SECOND).await;
        assert_eq!(guard.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::Broken));
    });
}

#[test]
fn a_waiter_gets_a_broken_lock() {
    test(async {
        let world = World::new();
        let other = another_process(&world);
        let (_held, next) = held_and_awaited(world.lock("k"), other.lock("k")).await;
        assert!(world.lock("k").break_hold(id_of(&world, "k").await).await.unwrap());
        world.pass(SECOND).await;
        next.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn an_id_of_an_earlier_hold_breaks_nothing() {
    test(async {
        let world = World::new();
        let earlier = world.lock("k").acquire().await.unwrap();
        let id = id_of(&world, "k").await;
        earlier.release().await.unwrap();
        assert!(!world.lock("k").break_hold(id).await.unwrap());
        let newer = world.lock("k").acquire().await.unwrap();
        assert!(!world.lock("k").break_hold(id).await.unwrap());
        newer.release().await.unwrap();
    });
}

/// Another one may be in already: the question for the cause must not keep the loss from the body.
#[test]
fn a_loss_is_reported_although_its_cause_cannot_be_found() {
    for step in [Step::Hang, Step::Fail, Step::Panic] {
        test(async {
            let world = World::new();
            world.store.always(Op::Record, step);
            let guard = world.lock("k").acquire().await.unwrap();
            let other = world.lock("other").acquire().await.unwrap();
            assert!(world.lock("k").break_hold(id_of(&world, "k").await).await.unwrap());
            world.pass(10 * SECOND).await;
            world.pass(300 * MS).await;
            assert_eq!(guard.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::Store), "{step:?}");
            world.pass(60 * SECOND).await;
            other.check().unwrap();
            other.release().await.unwrap();
        });
    }
}

#[test]
fn busy_and_timed_out_name_the_holder() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        let pid = std::process::id();
        let host = world.lock("k").holders().await.unwrap().note().unwrap().host().unwrap().to_owned();
        let other = another_process(&world);
        let busy = other.lock("k").try_acquire().await.unwrap_err();
        assert_eq!(busy.kind(), &ErrorKind::Busy);
        assert!(busy.to_string().contains(&format!("another owner holds the lock: {host}, ")), "{busy} {pid}");
        assert!(busy.to_string().contains("inspect.rs"), "{busy}");
        let waits = tokio::spawn(other.lock("k").wait(Wait::UpTo(SECOND)).acquire());
        world.pass(2 * SECOND).await;
        let timed_out = waits.await.unwrap().unwrap_err();
        assert_eq!(timed_out.kind(), &ErrorKind::WaitTimeout);
        assert!(timed_out.to_string().contains(&format!("while other owners held the lock: {host}, ")), "{timed_out}");
        guard.release().await.unwrap();
    });
}

#[test]
fn the_holds_of_this_process_are_listed_without_asking_a_store() {
    test(async {
        let world = World::new();
        assert!(world.registry.held().is_empty());
        let first = world.lock("a").acquire().await.unwrap();
        world.pass(3 * SECOND).await;
        let second = world.lock("b").acquire().await.unwrap();
        let held = world.registry.held();
        let [a, b] = &held[..] else { panic!("{held:?}") };
        assert_eq!((&a.key, &b.key, &*a.backend), (&full("a"), &full("b"), "m"));
        assert_eq!((a.held, a.id), (3 * SECOND, id_of(&world, "a").await));
        assert_eq!(a.token, Some(first.fence().unwrap().get()));
        let (longest, count) = world.registry.longest_held(1);
        assert_eq!((longest.len(), &longest[0].key, count), (1, &full("a"), 2));
        assert_eq!(world.registry.longest_held(2).0.len(), 2);
        first.release().await.unwrap();
        second.release().await.unwrap();
        calm().await;
        assert!(world.registry.held().is_empty());
    });
}

#[test]
fn locks_are_listed_page_by_page() {
    test(async {
        let world = World::new();
        let mut guards = Vec::new();
        for number in 0..5_u8 {
            guards.push(world.registry.lock(Key::text("item:").value(&number)).acquire().await.unwrap());
        }
        guards.push(world.lock("other").acquire().await.unwrap());
        let mut locks = world.registry.locks().prefix("item:").limit(2);
        let mut names = Vec::new();
        loop {
            let page = locks.clone().page().await.unwrap();
            assert!(page.locks.len() <= 2);
            names.extend(page.locks.iter().map(|lock| Key::from(&lock.key).to_string()));
            assert!(page.locks.iter().all(|lock| lock.state.note().is_some()));
            match page.next {
                Some(next) => locks = locks.after(next),
                None => break,
            }
        }
        assert_eq!(names, ["item:<0>", "item:<1>", "item:<2>", "item:<3>", "item:<4>"]);
        let all = world.registry.locks().backend("m").namespace("default").page().await.unwrap();
        assert_eq!(all.locks.len(), 6);
        assert!(world.registry.locks().namespace("elsewhere").page().await.unwrap().locks.is_empty());
        for wrong in [0, 1001] {
            let error = world.registry.locks().limit(wrong).page().await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::ConfigInvalid { field: "limit".into() });
        }
        let error = world.registry.locks().namespace("a b").page().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::ConfigInvalid { field: "namespace".into() });
    });
}

#[test]
fn a_key_as_somebody_types_it_is_found_also_where_the_store_cannot_list() {
    for can_list in [true, false] {
        test(async {
            let world = World::with(&Clock::manual(), |offers| offers.inspect = can_list);
            let like = async |text: &str| {
                let found = world.registry.locks().like(text).await.unwrap();
                found.iter().map(|lock| Key::from(&lock.key).to_string()).collect::<Vec<_>>()
            };
            assert!(like("stock:42").await.is_empty());
            let guard = world.registry.lock(Key::text("stock:").value(&42)).acquire().await.unwrap();
            assert_eq!(like("stock:42").await, ["stock:<42>"]);
            // With marks this one is longer than the store takes.
            let longest = format!("{}:42", "k".repeat(MAX_KEY_BYTES - "dl1:default:".len() - ":42".len()));
            assert!(like(&longest).await.is_empty());
            guard.release().await.unwrap();
        });
    }
}

#[test]
fn a_listed_key_names_its_lock_again() {
    test(async {
        let clock = Clock::manual();
        let registry = Registry::with_clock(&clock);
        registry.install("m", Memory::with_clock(&clock)).unwrap();
        let guard = registry.lock(Key::text("stock:").value("a<b>").and_text(":x")).acquire().await.unwrap();
        let page = registry.locks().page().await.unwrap();
        let id = page.locks[0].state.holders[0].id.unwrap();
        assert!(registry.lock(&page.locks[0].key).break_hold(id).await.unwrap());
        assert_eq!(guard.release().await.unwrap_err().kind(), &ErrorKind::Lost(LossCause::Broken));
    });
}

#[test]
fn the_holders_are_told_with_the_names_of_the_lock_in_the_store() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        let names = [full("k").to_string()];
        assert_eq!(world.lock("k").holders().await.unwrap().names, names);
        assert_eq!(world.registry.locks().page().await.unwrap().locks[0].state.names, names);
        guard.release().await.unwrap();
    });
}
