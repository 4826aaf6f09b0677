//! A child after `fork` has copies of its parent's guards and sockets, and may use none of them.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::arena::{Arena, PATIENCE, is_busy, job};
use crate::holder::FORK_OTHER;

pub(super) fn a_forked_child_leaves_its_parents_lock_alone(arena: &Arena) {
    arena.run(async {
        let near = arena.near().await;
        let other = near.lock(FORK_OTHER).ttl(PATIENCE).acquire().await.unwrap();
        let mut parent = arena.child("fork");
        parent.wait_line("holds", PATIENCE).unwrap();
        let done = AtomicBool::new(false);
        let stranger = async {
            while !done.load(Ordering::Relaxed) {
                // If this is granted, a child has freed its parent's lock.
                is_busy(|| job(&near)).await;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let parent = async {
            let parent = tokio::task::spawn_blocking(move || {
                parent.wait_line("held", PATIENCE).unwrap();
                parent
            });
            let parent = parent.await;
            done.store(true, Ordering::Relaxed);
            parent.unwrap()
        };
        let (mut parent, ()) = tokio::join!(parent, stranger);
        other.release().await.unwrap();
        parent.wait_line("released", PATIENCE).unwrap();
        arena.assert_nothing_left().await;
    });
}
