//! `kill -9`: the dead hold nothing for long, neither a lock nor a place in line.

use std::time::{Duration, Instant};

use crate::arena::{Arena, PATIENCE, job};

pub(super) fn kill_9_holder(arena: &Arena) {
    arena.run(async {
        let mut holder = arena.child("hold");
        let token: u64 = holder.wait_line("held ", PATIENCE).unwrap().parse().unwrap();
        let next = arena.near().await;
        let waiting = tokio::spawn(job(&next).acquire());
        // Time to stand in line. Were it too short, this would be the case below.
        tokio::time::sleep(Duration::from_millis(500)).await;
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
        let token: u64 = holder.wait_line("held ", PATIENCE).unwrap().parse().unwrap();
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
        let holder = arena.near().await;
        let guard = job(&holder).acquire().await.unwrap();
        let mut waiter = arena.child("wait");
        waiter.wait_line("waiting", PATIENCE).unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let last = arena.near().await;
        let waiting = tokio::spawn(job(&last).acquire());
        tokio::time::sleep(Duration::from_millis(500)).await;
        waiter.kill9().unwrap();
        let released = Instant::now();
        guard.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        arena.assert_in_time(released);
        guard.release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}
