//! SIGSTOP: a holder that slept past its ttl must not believe in its lock, and its late write is refused.

use std::time::Instant;

use dlock_testkit::Mode;

use crate::arena::{Arena, PATIENCE, TTL, job};
use crate::holder::RESOURCE_VALUE_OF_THE_LATE;

pub(super) fn a_stopped_holder_learns_of_its_loss_and_writes_nothing(arena: &Arena) {
    arena.run(async {
        let mut holder = arena.child("stopped in the body");
        let old: u64 = holder.wait_line("held ", PATIENCE).unwrap().parse().unwrap();
        let stopped = Instant::now();
        holder.stop().unwrap();

        let next = arena.near().await;
        let guard = job(&next).acquire().await.unwrap();
        arena.assert_in_time(stopped);
        let fence = guard.fence().unwrap();
        assert!(fence.get() > old);
        arena.resource.write(&fence, "by the second holder").await.unwrap();

        // It wakes to a silent network, so it has asked no server about its lock.
        arena.set(Mode::BLACKHOLE);
        tokio::time::sleep((TTL * 2).saturating_sub(stopped.elapsed())).await;
        holder.cont().unwrap();
        assert_eq!(holder.wait_line("check ", PATIENCE).unwrap(), "lost");
        assert_eq!(holder.wait_line("write ", PATIENCE).unwrap(), "refused as stale");
        // The very next line: "body went on" would stand before it.
        assert_eq!(holder.wait_line("", PATIENCE).unwrap(), "call lost");

        guard.check().unwrap();
        let value = arena.resource.read(&fence).await;
        assert_ne!(value, RESOURCE_VALUE_OF_THE_LATE);
        assert_eq!(value, "by the second holder");
        guard.release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}
