//! A batch of renewals that is answered when a hold of it with a short ttl has stopped waiting, and others have not.

use dlock_runtime::{Guard, LossCause, Renew};

use crate::support::{MS, Op, SECOND, Step, World, full, test};

/// Both are renewed after 2 s by one request, which the short one gives up after 2 s, and the long one after 5 s. It is
/// answered after 3 s, and no later one is.
async fn one_request(world: &World) -> (Guard, Guard) {
    let lock = |key, ttl| world.lock(key).ttl(ttl * SECOND).renew(Renew::Every(2 * SECOND)).acquire();
    let (short, long) = (lock("short", 6).await.unwrap(), lock("long", 30).await.unwrap());
    world.store.next(Op::Renew, [Step::Late(3 * SECOND)]);
    world.store.always(Op::Renew, Step::Hang);
    (short, long)
}

#[test]
fn the_answer_for_a_hold_that_gave_up_prolongs_it() {
    test(async {
        let world = World::new();
        let (short, long) = one_request(&world).await;
        world.pass(5500 * MS).await;
        world.events.expect("RenewalFailed", 1).await;
        world.pass(1500 * MS).await;
        short.check().unwrap();
        world.pass(SECOND).await;
        short.check().unwrap_err();
        long.check().unwrap();
    });
}

#[test]
fn the_answer_that_a_hold_that_gave_up_is_lost_ends_it_at_once() {
    test(async {
        let world = World::new();
        let (short, long) = one_request(&world).await;
        world.memory.forget(&full("short"));
        world.pass(5500 * MS).await;
        let lost = short.check().unwrap_err();
        assert_eq!(lost.kind(), &dlock_runtime::ErrorKind::Lost(LossCause::Store));
        long.check().unwrap();
    });
}

/// Nobody knows which hold has no answer.
#[test]
fn an_answer_for_some_of_the_holds_is_none_for_all_of_them() {
    test(async {
        let world = World::new();
        let one = world.lock("one").acquire().await.unwrap();
        let two = world.lock("two").acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Fewer, Step::Fewer]);
        world.pass(100 * SECOND).await;
        one.check().unwrap();
        two.check().unwrap();
    });
}

#[test]
fn a_hold_that_is_renewed_for_less_than_its_ttl_is_renewed_sooner() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.always(Op::Renew, Step::Short(6 * SECOND));
        world.pass(60 * SECOND).await;
        guard.check().unwrap();
    });
}

/// Whatever the ttl: its failure is known in time for many more tries.
#[test]
fn a_renewal_without_an_answer_has_failed_after_five_seconds() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").ttl(120 * SECOND).acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Hang]);
        while world.store.calls(Op::Renew) == 0 {
            world.pass(SECOND).await;
        }
        world.pass(6 * SECOND).await;
        world.events.expect("RenewalFailed", 1).await;
        guard.check().unwrap();
    });
}

#[test]
fn a_hold_without_renewals_has_none_after_it_was_confirmed() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").renew(Renew::Off).acquire().await.unwrap();
        guard.confirm().await.unwrap();
        world.pass(31 * SECOND).await;
        guard.check().unwrap_err();
        assert_eq!(world.store.calls(Op::Renew), 1);
    });
}
