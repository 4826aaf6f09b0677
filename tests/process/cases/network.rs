//! Networks that swallow, delay and cut: at most one holder believes at any time.

use std::time::{Duration, Instant};

use dlock::{Error, ErrorKind, Guard, LossCause};
use dlock_testkit::{Mode, lateness, until_lost};

use crate::arena::{Arena, TTL, answered, is_busy, job};

pub(super) fn a_silent_network_is_a_loss_by_the_own_deadline(arena: &Arena) {
    lost_by_deadline(arena, Mode::BLACKHOLE);
}

pub(super) fn a_network_silent_one_way_is_a_loss_too(arena: &Arena) {
    lost_by_deadline(arena, Mode::Blackhole { to_server: false, to_client: true });
}

fn lost_by_deadline(arena: &Arena, mode: Mode) {
    arena.run(async {
        let (first, second) = (arena.far().await, arena.near().await);
        let guard = job(&first).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&second).acquire());
        // Into the middle of the renewals.
        tokio::time::sleep(TTL).await;
        arena.set(mode);
        let cut = Instant::now();
        let (lost, believed) = until_lost(cut, || guard.remaining(), guard.lost()).await;
        lateness::assert_within(believed, cut, "the loss");
        assert_eq!(*lost.kind(), ErrorKind::Lost(LossCause::Deadline));
        assert!(believed <= TTL, "the lease of a renewal that was sent after the cut: {believed:?}");
        let next = waiting.await.unwrap().unwrap();
        assert!(guard.check().is_err());
        // One way, renewals still arrive until the deadline, so the ttl may begin there.
        lateness::assert_within(arena.takeover() + believed, cut, "the next grant");
        next.release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}

pub(super) fn a_lost_reply_to_a_release_frees_in_time(arena: &Arena) {
    arena.run(async {
        let (first, second) = (arena.far().await, arena.near().await);
        let guard = job(&first).acquire().await.unwrap();
        arena.set(Mode::DropReplies);
        let released = Instant::now();
        let told = guard.release().await;
        if arena.store.is_session() {
            // It is unknown when the session ended, so no call may return `Ok`.
            assert!(told.unwrap_err().is_lost());
        } else {
            // The lock covered the work of its body, even if the release fails later.
            told.unwrap();
        }
        let next = job(&second).acquire().await.unwrap();
        arena.assert_in_time(released);
        // The release that is tried again must not end another owner's hold.
        arena.set(Mode::Pass);
        tokio::time::sleep(TTL).await;
        answered(async || next.confirm().await).await.unwrap();
        next.release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}

pub(super) fn a_lost_reply_to_a_renewal_makes_no_second_holder(arena: &Arena) {
    arena.run(async {
        let (first, second) = (arena.far().await, arena.near().await);
        // So long that a slow machine makes the next renewal in time.
        let guard = job(&first).ttl(TTL * 2).acquire().await.unwrap();
        arena.set(Mode::DropReplies);
        // At a third of the ttl there is a renewal. Recovers in time for the next one.
        tokio::time::sleep(TTL).await;
        arena.set(Mode::Pass);
        if arena.store.is_session() {
            // The lock ended with the connection. The first holder must know it.
            let next = job(&second).acquire().await.unwrap();
            assert!(guard.check().is_err(), "two holders");
            next.release().await.unwrap();
        } else {
            let start = Instant::now();
            while start.elapsed() < TTL * 3 {
                is_busy(|| job(&second)).await;
                tokio::time::sleep(TTL / 10).await;
            }
            guard.check().unwrap();
            guard.release().await.unwrap();
        }
        arena.assert_nothing_left().await;
    });
}

pub(super) fn a_late_grant_is_short_or_refused(arena: &Arena) {
    arena.run(async {
        let (first, second) = (arena.far().await, arena.near().await);
        // The connections are there already: only the grant itself comes late.
        job(&first).acquire().await.unwrap().release().await.unwrap();
        let late = TTL * 9 / 10;
        arena.set(Mode::Delay { to_server: Duration::ZERO, to_client: late });
        let asked = Instant::now();
        let answer: Result<Guard, Error> = job(&first).try_acquire().await;
        if let Ok(guard) = &answer {
            assert!(asked.elapsed() >= late, "the grant came before its reply");
            let most = TTL.saturating_sub(late);
            assert!(guard.remaining() <= most, "{:?} is believed in", guard.remaining());
        }
        let next = job(&second).acquire().await.unwrap();
        assert!(!answer.is_ok_and(|guard| guard.check().is_ok()), "two holders");
        arena.set(Mode::Pass);
        next.release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}
