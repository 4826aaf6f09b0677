//! A process that dies with a reader's hold, a permit and several locks of one request: each is free in time.

use std::time::Instant;

use dlock::{Mode, Wait};

use crate::arena::{Arena, PATIENCE, TTL};

/// What the holder has: a lock for each mode, and several locks at once.
pub(crate) const READ: &str = "read";
pub(crate) const PERMIT: &str = "permit";
pub(crate) const SEVERAL: [&str; 2] = ["several a", "several b"];

pub(super) fn kill_9_holder_of_every_mode(arena: &Arena) {
    arena.run(async {
        let mut holder = arena.child("hold every mode");
        let line = holder.wait_line("held ", PATIENCE).unwrap();
        let tokens: Vec<u64> = line.split(' ').map(|token| token.parse().unwrap()).collect();
        let next = arena.near().await;
        let lock = |key: &'static str, mode| next.lock(key).mode(mode).ttl(TTL).wait(Wait::UpTo(PATIENCE));
        // Nothing of it is free before, but what it shares.
        let reader = lock(READ, Mode::Read).wait(Wait::None).acquire().await.unwrap();
        let other = lock(PERMIT, Mode::permits(2)).wait(Wait::None).acquire().await.unwrap();
        assert_eq!(other.slot(), Some(1));
        reader.release().await.unwrap();
        for (key, mode) in [(READ, Mode::Write), (PERMIT, Mode::permits(2)), (SEVERAL[1], Mode::Exclusive)] {
            let error = lock(key, mode).wait(Wait::None).acquire().await.unwrap_err();
            assert_eq!(*error.kind(), dlock::ErrorKind::Busy, "{key}: {error}");
        }
        let waiting = async {
            let several = next.lock_all(SEVERAL).ttl(TTL).wait(Wait::UpTo(PATIENCE));
            let [writer, permit] = [(READ, Mode::Write), (PERMIT, Mode::permits(2))].map(|(key, mode)| lock(key, mode));
            tokio::try_join!(writer.acquire(), permit.acquire(), several.acquire()).unwrap()
        };
        let killed = Instant::now();
        holder.kill9().unwrap();
        let (writer, permit, several) = waiting.await;
        arena.assert_in_time(killed);
        assert_eq!(permit.slot(), Some(0), "the dead holder's slot");
        let fences = [&writer, &permit].map(|guard| guard.fence().unwrap().get());
        let later = several.held().map(|held| held.fence().unwrap().get());
        assert!(fences.into_iter().chain(later).zip(&tokens).all(|(next, dead)| next > *dead), "{tokens:?}");
        for guard in [writer, permit, other] {
            guard.release().await.unwrap();
        }
        several.release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}
