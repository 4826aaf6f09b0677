//! Holds that live in sessions: the end of a session is a hint, and the store's answer decides.

use std::sync::atomic::Ordering;

use dlock_contract::{BreakRecord, Expiry, Inspect};
use dlock_runtime::{Clock, ErrorKind, HoldId, LossCause, Renew};

use crate::cohort::second_of_three;
use crate::support::{Line, MS, Op, SECOND, Step, World, calm, full, poll_once, test, until};

fn in_sessions() -> World {
    World::with(&Clock::manual(), |can| can.expiry = Expiry::Session { told: SECOND })
}

/// All holds live in one session.
fn in_one_session() -> World {
    World::with(&Clock::manual(), |can| {
        can.expiry = Expiry::Session { told: SECOND };
        can.group = Some(7);
    })
}

async fn heard(world: &World, renewals: usize) {
    until("a renewal by the hint", || world.store.calls(Op::Renew) == renewals).await;
    calm().await;
}

#[test]
fn the_end_of_a_session_is_a_loss_at_once() {
    test(async {
        let world = in_sessions();
        let guard = world.lock("k").acquire().await.unwrap();
        let mut lost = Box::pin(guard.lost());
        assert!(poll_once(&mut lost).is_pending());
        world.memory.forget(&full("k"));
        world.store.session().hint();
        assert_eq!(lost.await.kind(), &ErrorKind::Lost(LossCause::Store));
        world.events.expect("Lost", 1).await;
        assert_eq!(world.store.calls(Op::Renew), 1);
    });
}

#[test]
fn a_wrong_hint_costs_one_renewal_and_loses_nothing() {
    test(async {
        let world = in_sessions();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.session().hint();
        heard(&world, 1).await;
        guard.check().unwrap();
        // A wrong hint does not make the engine deaf: the next one is heard.
        world.pass(SECOND).await;
        assert_eq!((world.store.calls(Op::Renew), world.store.session().listeners()), (1, 1));
        world.memory.forget(&full("k"));
        world.store.session().hint();
        assert_eq!(guard.lost().await.kind(), &ErrorKind::Lost(LossCause::Store));
    });
}

#[test]
fn all_holds_of_a_group_are_told_by_one_hint() {
    test(async {
        let world = in_one_session();
        let one = world.lock("one").acquire().await.unwrap();
        let two = world.lock("two").acquire().await.unwrap();
        assert_eq!(world.store.session().listeners(), 1, "a group has one listener");
        world.memory.forget(&full("one"));
        world.memory.forget(&full("two"));
        world.store.session().hint();
        assert!(one.lost().await.is_lost() && two.lost().await.is_lost());
        assert_eq!(world.store.calls(Op::Renew), 1, "they are confirmed by one request");
    });
}

#[test]
fn the_rest_of_a_group_is_still_told_after_its_first_hold_has_ended() {
    test(async {
        let world = in_one_session();
        let one = world.lock("one").acquire().await.unwrap();
        let two = world.lock("two").acquire().await.unwrap();
        one.release().await.unwrap();
        calm().await;
        assert_eq!(world.store.session().listeners(), 1);
        world.memory.forget(&full("two"));
        world.store.session().hint();
        assert!(two.lost().await.is_lost());
        calm().await;
        // The next hold of the group has a listener again.
        let _three = world.lock("three").acquire().await.unwrap();
        until("a listener", || world.store.session().listeners() == 1).await;
    });
}

/// The renewal that is under way may hang for as long as a third of the ttl.
#[test]
fn an_end_that_is_told_during_a_renewal_is_a_loss_at_once() {
    test(async {
        let world = in_sessions();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Hang]);
        world.pass(10 * SECOND).await;
        assert_eq!(world.store.calls(Op::Renew), 1);
        world.memory.forget(&full("k"));
        world.store.session().hint();
        assert_eq!(guard.lost().await.kind(), &ErrorKind::Lost(LossCause::Store));
    });
}

/// Else two renewals would be sent each time from then on, or none.
#[test]
fn a_hold_that_was_confirmed_during_a_renewal_is_renewed_on_schedule() {
    test(async {
        let world = in_sessions();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Late(2 * SECOND)]);
        world.pass(10 * SECOND).await;
        world.store.session().hint();
        heard(&world, 2).await;
        world.pass(60 * SECOND).await;
        guard.check().unwrap();
        let renewals = world.store.calls(Op::Renew);
        assert!((7..=9).contains(&renewals), "{renewals} renewals in 70 seconds at a ttl of 30");
    });
}

/// The next caller of a cohort would not hear the answer to the renewal that is left.
#[test]
fn a_hold_is_renewing_until_both_renewals_are_answered() {
    test(async {
        let world = in_sessions();
        let (second, third) = second_of_three(&world).await;
        world.store.next(Op::Renew, [Step::Hang]);
        world.pass(10 * SECOND).await;
        world.store.session().hint();
        heard(&world, 2).await;
        second.release().await.unwrap();
        third.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Reserve)), (1, 2));
    });
}

#[test]
fn a_wrong_hint_does_not_prolong_a_hold_without_renewals() {
    test(async {
        let world = in_sessions();
        // However late the answer to it comes.
        for late in [Step::Pass, Step::Late(7 * SECOND)] {
            let before = world.store.calls(Op::Renew);
            let guard = world.lock("k").renew(Renew::Off).acquire().await.unwrap();
            world.pass(20 * SECOND).await;
            world.store.next(Op::Renew, [late]);
            world.store.session().hint();
            heard(&world, before + 1).await;
            guard.check().unwrap();
            world.pass(10 * SECOND).await;
            assert_eq!(guard.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::Deadline));
            drop(guard);
            world.pass(60 * SECOND).await;
        }
    });
}

#[test]
fn a_session_that_hints_all_the_time_is_confirmed_less_and_less_often() {
    test(async {
        let world = in_sessions();
        let guard = world.lock("k").renew(Renew::Off).acquire().await.unwrap();
        world.store.session().noisy.store(true, Ordering::Relaxed);
        world.store.session().hint();
        for _ in 0..200 {
            world.clock.advance(100 * MS);
            calm().await;
        }
        guard.check().unwrap();
        let renewals = world.store.calls(Op::Renew);
        // After 0.1, 0.2, 0.4, 0.8, 1.6 and 3.2 seconds, and then every five.
        assert!((7..=11).contains(&renewals), "{renewals} renewals in 20 seconds");
    });
}

#[test]
fn a_session_that_an_operator_ended_is_told_with_the_record() {
    test(async {
        let world = in_sessions();
        let guard = world.lock("k").acquire().await.unwrap();
        let id: HoldId = world.lock("k").holders().await.unwrap().holders[0].id.unwrap();
        let record = BreakRecord::new("alice", 17, "web-3 hangs");
        assert!(world.memory.break_hold(&full("k"), id, &record).await.unwrap());
        world.store.session().hint();
        let error = guard.lost().await;
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Broken));
        assert!(error.to_string().contains("alice, at 00:00:00 UTC: web-3 hangs"), "{error}");
    });
}

#[test]
fn nobody_listens_to_a_session_after_the_release() {
    test(async {
        for world in [in_sessions(), in_one_session()] {
            let guard = world.lock("k").acquire().await.unwrap();
            let kept = dlock_runtime::Held::clone(&guard);
            guard.release().await.unwrap();
            until("the listener is gone", || world.store.session().listeners() == 0).await;
            world.store.session().hint();
            world.pass(SECOND).await;
            assert_eq!(world.store.calls(Op::Renew), 0);
            assert_eq!(world.events.names(), ["Acquired", "Released"]);
            drop(kept);
        }
    });
}

/// As a transaction of a row lock is asked for on lease rows.
#[test]
fn a_lock_without_a_session_says_what_the_call_needs() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        let error = guard.session::<Line>("a row lock (`way=row`)").map(drop).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Unsupported { need: "a row lock (`way=row`)".into() });
        let text = "the lock has no transaction or session for this call, which needs a row lock (`way=row`)";
        assert!(error.to_string().contains(text), "{error}");
    });
}
