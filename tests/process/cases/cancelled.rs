//! Dropped futures: an acquisition that nobody awaits any more leaves nothing in the store.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use dlock::{Guard, Result};
use fastrand::Rng;

use crate::arena::{Arena, job};

const POINTS: u32 = 200;

pub(super) fn two_hundred_dropped_acquisitions_leave_nothing(arena: &Arena) {
    let seed = std::env::var("DLOCK_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    eprintln!("{}: DLOCK_SEED={seed} repeats these points", arena.store.name());
    arena.run(async {
        let mut random = Rng::with_seed(seed);
        let (other, dropper) = (arena.near().await, arena.far().await);
        // One contended cycle opens whatever connections there will be.
        let guard = job(&other).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&dropper).acquire());
        tokio::time::sleep(Duration::from_millis(300)).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        let start = Instant::now();
        job(&dropper).acquire().await.unwrap().release().await.unwrap();
        let cycle = start.elapsed();
        let before = clients(arena).await;

        let mut won = 0;
        for point in 0..POINTS {
            // Free, held throughout, and released at some moment around the drop.
            let guard = if point % 3 == 0 { None } else { Some(job(&other).acquire().await.unwrap()) };
            let moment = cycle.mul_f64(random.f64() * 2.0);
            let released = if point % 3 == 1 { cycle.mul_f64(random.f64() * 2.0) } else { cycle * 2 };
            let release = async {
                if let Some(guard) = guard {
                    spin(released).await;
                    guard.release().await.unwrap();
                }
            };
            let steps = if point % 2 == 0 { u32::MAX } else { random.u32(1..8) };
            let dropped = drop_at(job(&dropper).acquire(), steps, moment);
            let (acquired, ()) = tokio::join!(dropped, release);
            won += u32::from(acquired);
        }
        eprintln!("{}: {won} of {POINTS} were granted before the drop, a cycle took {cycle:?}", arena.store.name());
        assert!(won < POINTS, "no acquisition was dropped under way");

        arena.assert_nothing_left().await;
        let third = arena.near().await;
        job(&third).try_acquire().await.unwrap().release().await.unwrap();
        third.shutdown(Duration::from_secs(1)).await;
        tokio::time::sleep(arena.takeover()).await;
        let after = clients(arena).await;
        assert!(after.len() <= before.len(), "clients before: {before:#?}\nafter: {after:#?}");
    });
}

/// What the server and the proxy know of clients.
async fn clients(arena: &Arena) -> Vec<String> {
    let mut clients = arena.probe.clients().await;
    let proxied = arena.proxy.as_ref().map_or(0, dlock_testkit::Proxy::connections);
    clients.extend((0..proxied).map(|_| "a connection through the proxy".to_owned()));
    clients
}

/// Polls so often or for so long at most, then drops. True if it was granted.
async fn drop_at(acquire: impl Future<Output = Result<Guard>>, steps: u32, moment: Duration) -> bool {
    let mut left = steps;
    let mut acquire = pin!(acquire);
    let stepping = poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        acquire.as_mut().poll(cx).map(|guard| {
            guard.unwrap();
            true
        })
    });
    tokio::select! {
        biased;
        granted = stepping => granted,
        () = spin(moment) => false,
    }
}

/// Passes time in finer steps than the runtime's timer has.
async fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        tokio::task::yield_now().await;
    }
}
