//! Holds that end under a body which runs on: nobody gets their locks before the body or the lease has ended.

use std::future::pending;
use std::sync::mpsc::channel;

use dlock_runtime::{Clock, ErrorKind, LossCause, OnLost};

use crate::acquire::stranger;
use crate::support::{MS, Op, SECOND, World, calm, freed, is_free, poll_once, test, until};

#[test]
fn a_shutdown_leaves_the_lock_of_a_body_that_blocks_its_thread_to_its_end() {
    test(async {
        let world = World::new();
        let other = stranger(&world);
        let ((begun, has_begun), (end, may_end)) = (channel(), channel::<()>());
        let lock = world.lock("k");
        let running = std::thread::spawn(move || {
            lock.run_blocking(|held| {
                begun.send(()).unwrap();
                may_end.recv().unwrap();
                held.check().unwrap_err().kind().clone()
            })
        });
        until("the body runs", || has_begun.try_recv().is_ok()).await;
        let report = world.pass_until(50 * MS, world.registry.shutdown(SECOND)).await;
        assert_eq!((report.cut_off, report.left_to_ttl, report.unconfirmed), (1, 1, 0));
        assert!(!is_free(&other, "k").await, "the body runs");
        assert_eq!(world.store.calls(Op::Close), 0, "a connection may be the lock");
        end.send(()).unwrap();
        let ended = running.join().unwrap();
        assert_eq!(*ended.unwrap_err().kind(), ErrorKind::Lost(LossCause::Shutdown));
        world.empty().await;
        freed(&other, "k").await;
    });
}

/// A body that nobody polls, one that ignores the loss, and a guard that the caller keeps.
#[test]
fn a_shutdown_leaves_the_locks_of_other_bodies_that_run_on_to_their_ttl() {
    test(async {
        for expires_alone in [true, false] {
            let world = World::with(&Clock::manual(), |store| store.expires_alone = expires_alone);
            let other = stranger(&world);
            let mut unpolled = Box::pin(world.lock("unpolled").run(|_| pending::<()>()));
            assert!(poll_once(&mut unpolled).is_pending());
            let goes_on = world.lock("goes on").on_lost(OnLost::Continue).run(|_| pending::<()>());
            let goes_on = tokio::spawn(goes_on);
            let kept = world.lock("kept").acquire().await.unwrap();
            let dropped = tokio::spawn(world.lock("dropped").run(|_| pending::<()>()));
            calm().await;
            let report = world.pass_until(50 * MS, world.registry.shutdown(SECOND)).await;
            assert_eq!((report.cut_off, report.left_to_ttl, report.unconfirmed), (4, 3, 0));
            dropped.await.unwrap().unwrap_err();
            freed(&other, "dropped").await;
            for key in ["unpolled", "goes on", "kept"] {
                assert!(!is_free(&other, key).await, "{key}");
            }
            drop(unpolled);
            until("the release", || world.store.calls(Op::Release) == 2).await;
            freed(&other, "unpolled").await;
            world.pass(31 * SECOND).await;
            for key in ["goes on", "kept"] {
                // Its lease is over.
                freed(&other, key).await;
            }
            assert!(kept.check().unwrap_err().is_lost() && !goes_on.is_finished());
        }
    });
}

/// The loss has come before the shutdown, so these holds are in no schedule.
#[test]
fn a_shutdown_tells_of_a_body_that_runs_on_after_max_hold_until_its_lease_is_over() {
    for (since_the_loss, left, closed) in [(SECOND, 1, 0), (31 * SECOND, 0, 1)] {
        test(async {
            let world = World::new();
            let lock = |key| world.lock(key).max_hold(100 * SECOND);
            let (kept, ended) = (lock("kept").acquire().await.unwrap(), lock("ended").acquire().await.unwrap());
            world.pass(100 * SECOND).await;
            assert_eq!(*kept.check().unwrap_err().kind(), ErrorKind::Lost(LossCause::MaxHold));
            drop(ended);
            world.pass(since_the_loss).await;
            let report = world.pass_until(50 * MS, world.registry.shutdown(SECOND)).await;
            assert_eq!((report.cut_off, report.left_to_ttl, report.unconfirmed), (0, left, 0));
            assert_eq!(world.store.calls(Op::Close), closed, "a connection may be the lock");
            drop(kept);
            world.empty().await;
        });
    }
}

/// Elsewhere the lease ends by itself, and no earlier.
#[test]
fn a_store_that_would_keep_the_lock_beyond_max_hold_is_asked_to_free_it_at_the_end_of_its_lease() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.expires_alone = false);
        let guard = world.lock("k").max_hold(100 * SECOND).acquire().await.unwrap();
        world.pass(100 * SECOND).await;
        assert_eq!(*guard.check().unwrap_err().kind(), ErrorKind::Lost(LossCause::MaxHold));
        calm().await;
        assert_eq!(world.store.calls(Op::Release), 0, "the body may run on");
        world.pass(30 * SECOND).await;
        world.empty().await;
        assert_eq!(world.store.calls(Op::Release), 1);
        drop(guard);
        freed(&world, "k").await;
        world.events.expect("Lost", 1).await;
    });
}

#[test]
fn a_lock_that_is_lost_by_max_hold_is_free_as_soon_as_its_body_has_ended() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.expires_alone = false);
        let guard = world.lock("k").max_hold(100 * SECOND).acquire().await.unwrap();
        world.pass(100 * SECOND).await;
        drop(guard);
        world.empty().await;
        world.pass(60 * SECOND).await;
        assert_eq!(world.store.calls(Op::Release), 1);
    });
}
