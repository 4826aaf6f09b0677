//! The order of locks, in debug builds.

use dlock_runtime::{Event, Key};

use crate::support::{World, full, test};

async fn nest(world: &World, outer: &'static str, inner: &'static str) {
    let inside = world.lock(inner).name(format!("takes {inner}")).run(|_| async {});
    world.lock(outer).name(format!("takes {outer}")).run(|_| inside).await.unwrap().unwrap();
}

fn cycles(world: &World) -> Vec<String> {
    let told = |(label, event)| match event {
        Event::OrderCycle { elsewhere } => Some(format!("{label} / {elsewhere}")),
        _ => None,
    };
    world.events.all().into_iter().filter_map(told).collect()
}

#[test]
fn two_opposite_lock_orders_are_reported_once_with_both_places() {
    test(async {
        let world = World::new();
        for _ in 0..3 {
            nest(&world, "a", "b").await;
        }
        assert_eq!(cycles(&world), [""; 0]);
        for _ in 0..3 {
            nest(&world, "b", "a").await;
        }
        assert_eq!(cycles(&world), ["takes a [a] on m / takes b"]);
    });
}

#[test]
fn an_order_is_seen_whatever_the_names_of_the_backend() {
    test(async {
        let world = World::new();
        let shared = std::sync::Arc::new(dlock_memory::Memory::with_clock(&world.clock));
        for name in ["one", "two"] {
            world.registry.install_shared(name, shared.clone()).unwrap();
        }
        let lock = |key, backend: &str| world.lock(key).name(format!("takes {key}")).backend(backend);
        let (inner, other) = (lock("b", "two"), lock("a", "two"));
        lock("a", "one").run(|_| inner.run(|_| async {})).await.unwrap().unwrap();
        lock("b", "one").run(|_| other.run(|_| async {})).await.unwrap().unwrap();
        assert_eq!(cycles(&world), ["takes a [a] on two / takes b"]);
    });
}

#[test]
fn a_cycle_of_three_locks_is_reported() {
    test(async {
        let world = World::new();
        nest(&world, "a", "b").await;
        nest(&world, "b", "c").await;
        nest(&world, "c", "a").await;
        assert_eq!(cycles(&world), ["takes a [a] on m / takes b"]);
        // The same two locks from the other side were reported already.
        nest(&world, "a", "c").await;
        assert_eq!(cycles(&world).len(), 1);
    });
}

#[test]
fn one_template_nested_in_itself_is_a_cycle_but_not_as_a_list_of_keys() {
    test(async {
        let world = World::new();
        let account = |id: u64| Key::text("account:").value(&id);
        world.registry.lock_all([account(1), account(2)]).acquire().await.unwrap().release().await.unwrap();
        assert_eq!(cycles(&world), [""; 0]);
        let inside = world.registry.lock(account(2)).run(|_| async {});
        world.registry.lock(account(1)).run(|_| inside).await.unwrap().unwrap();
        assert_eq!(cycles(&world).len(), 1);
    });
}

#[test]
fn a_timeout_says_what_the_caller_holds() {
    test(async {
        let world = World::new();
        let _other = world.lock("b").acquire().await.unwrap();
        let inside = world.lock("b").wait(dlock_runtime::Wait::UpTo(crate::support::SECOND));
        let run = world.lock("a").run(|_| inside.acquire());
        let error = world.pass_until(crate::support::SECOND, run).await.unwrap().unwrap_err();
        assert!(error.to_string().contains(&format!("the caller itself holds {}", full("a"))), "{error}");
    });
}
