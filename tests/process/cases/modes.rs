//! A process that dies with a permit, several locks of one request and, where the store has them, a reader's hold: each is
//! free in time.

use std::time::Instant;

use dlock::{Mode, Wait};
use dlock_testkit::lateness;
use futures::future::try_join_all;

use crate::arena::{Arena, PATIENCE, TTL, is_busy, tried};

/// The variable that tells the holder whether the store has readers.
pub(crate) const READERS: &str = "READERS";
/// The locks that the holder takes in one call.
pub(crate) const SEVERAL: [&str; 2] = ["several a", "several b"];

const READ: &str = "read";
const PERMIT: &str = "permit";

/// The other locks of the holder: the key, its mode, and the mode in which the next one waits for it.
pub(crate) fn shared_modes(readers: bool) -> Vec<(&'static str, Mode, Mode)> {
    let read = readers.then_some((READ, Mode::Read, Mode::Write));
    read.into_iter().chain([(PERMIT, Mode::permits(2), Mode::permits(2))]).collect()
}

pub(super) fn kill_9_holder_of_every_mode(arena: &Arena) {
    arena.run(async {
        let readers = arena.store.has_readers();
        let mut holder = arena.child_with("hold every mode", &[(READERS, &readers.to_string())]);
        let line = holder.wait_line("held ", PATIENCE).unwrap();
        let tokens: Vec<u64> = line.split(' ').map(|token| token.parse().unwrap()).collect();
        let next = arena.near().await;
        let lock = |key: &'static str, mode| next.lock(key).mode(mode).ttl(TTL).wait(Wait::UpTo(PATIENCE));
        // Nothing of it is free before, but what it shares.
        if readers {
            let reader = tried(|| lock(READ, Mode::Read)).await.unwrap();
            reader.release().await.unwrap();
        }
        let other = tried(|| lock(PERMIT, Mode::permits(2))).await.unwrap();
        assert_eq!(other.slot(), Some(1));
        let wanted: Vec<_> = shared_modes(readers).into_iter().map(|(key, _, next)| (key, next)).collect();
        for &(key, mode) in wanted.iter().chain(&[(SEVERAL[1], Mode::Exclusive)]) {
            is_busy(|| lock(key, mode)).await;
        }
        let waiting = async {
            let several = next.lock_all(SEVERAL).ttl(TTL).wait(Wait::UpTo(PATIENCE));
            let shared = wanted.iter().map(|&(key, mode)| lock(key, mode).acquire());
            tokio::try_join!(try_join_all(shared), several.acquire()).unwrap()
        };
        let killed = Instant::now();
        holder.kill9().unwrap();
        let (shared, several) = waiting.await;
        arena.assert_in_time(killed);
        assert_eq!(shared.last().unwrap().slot(), Some(0), "the dead holder's slot");
        let fences = shared.iter().map(|guard| guard.fence().unwrap().get());
        let later = several.held().map(|held| held.fence().unwrap().get());
        assert!(fences.chain(later).zip(&tokens).all(|(next, dead)| next > *dead), "{tokens:?}");
        for guard in shared.into_iter().chain([other]) {
            let released = guard.release().await;
            released.unwrap_or_else(|error| panic!("{error}{}", lateness::verdict(killed, TTL / 2)));
        }
        several.release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}
