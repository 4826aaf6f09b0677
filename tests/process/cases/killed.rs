//! Dead and stopped processes hold nothing for long, neither a lock nor a place in the queue.

use std::time::Instant;

use dlock_testkit::child::Child;

use crate::arena::{Arena, PATIENCE, TTL, job, now};

pub(super) fn kill_9_holder(arena: &Arena) {
    arena.run(async {
        let mut holder = arena.child("hold");
        let token = token(&mut holder);
        let next = arena.near().await;
        let waiting = tokio::spawn(job(&next).acquire());
        arena.until_waiting(&next, 1).await;
        let killed = Instant::now();
        holder.kill9().unwrap();
        let guard = waiting.await.unwrap().unwrap();
        arena.assert_in_time(killed);
        assert!(guard.fence().unwrap().get() > token);
        guard.release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}

pub(super) fn kill_9_holder_before_anybody_waits(arena: &Arena) {
    arena.run(async {
        let mut holder = arena.child("hold");
        let token = token(&mut holder);
        let next = arena.near().await;
        let killed = Instant::now();
        holder.kill9().unwrap();
        let guard = job(&next).acquire().await.unwrap();
        arena.assert_in_time(killed);
        assert!(guard.fence().unwrap().get() > token);
        guard.release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}

pub(super) fn kill_9_waiter_does_not_block_the_line(arena: &Arena) {
    arena.run(async {
        let mut waiter = leave_behind_in_line(arena, Child::kill9).await;
        waiter.kill9().unwrap();
        arena.assert_nothing_left().await;
    });
}

pub(super) fn a_stopped_waiter_neither_blocks_the_line_nor_uses_an_old_grant(arena: &Arena) {
    arena.run(async {
        let mut waiter = leave_behind_in_line(arena, Child::stop).await;
        let last = arena.near().await;
        let guard = job(&last).acquire().await.unwrap();
        // It may have been granted the lock in its sleep. That grant is old by now.
        waiter.cont().unwrap();
        tokio::time::sleep(TTL).await;
        guard.check().unwrap();
        let (token, released) = (guard.fence().unwrap().get(), now());
        guard.release().await.unwrap();
        let (its_token, its_grant) = grant(&mut waiter);
        assert!(its_token > token);
        assert!(its_grant >= released.as_nanos(), "two holders");
    });
}

/// A child waits behind us and is killed or stopped, and we release. The next waiter must get the lock in time.
async fn leave_behind_in_line(arena: &Arena, ends: fn(&mut Child) -> dlock_testkit::Result<()>) -> Child {
    let holder = arena.near().await;
    let guard = job(&holder).acquire().await.unwrap();
    let mut waiter = arena.child("wait");
    waiter.wait_line("waiting", PATIENCE).unwrap();
    arena.until_waiting(&holder, 1).await;
    let last = arena.near().await;
    let waiting = tokio::spawn(job(&last).acquire());
    arena.until_waiting(&holder, 2).await;
    ends(&mut waiter).unwrap();
    let released = Instant::now();
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    arena.assert_in_time(released);
    guard.release().await.unwrap();
    waiter
}

fn token(holder: &mut Child) -> u64 {
    grant(holder).0
}

/// The token of its grant, and when it saw it.
fn grant(holder: &mut Child) -> (u64, u64) {
    let line = holder.wait_line("held ", PATIENCE).unwrap();
    let (token, seen) = line.split_once(' ').unwrap();
    (token.parse().unwrap(), seen.parse().unwrap())
}
