//! Dropped futures: an acquisition that nobody awaits any more leaves nothing in the store.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use dlock::{Guard, Registry, Result};
use dlock_testkit::{Proxy, wait_until};
use fastrand::Rng;

use crate::arena::{Arena, TTL, job};
use crate::store::Store;

const POINTS: u32 = 200;

/// Enough to have as many connections side by side as there will ever be.
const WARM_UP: u32 = 20;

/// So much later than asked for may a timer of the runtime end.
const TIMER: Duration = Duration::from_millis(2);

pub(super) fn two_hundred_dropped_acquisitions_leave_nothing(arena: &Arena) {
    arena.run(async {
        let mut points = Points { random: Rng::with_seed(super::seed(arena)), cycle: Duration::ZERO };
        let (other, dropper) = (arena.near().await, arena.far().await);
        job(&dropper).acquire().await.unwrap().release().await.unwrap();
        // The shortest of several: on a busy machine one may take a hundred times as long, and the trial lasts for hundreds of them.
        points.cycle = Duration::MAX;
        for _ in 0..5 {
            let start = Instant::now();
            job(&dropper).acquire().await.unwrap().release().await.unwrap();
            points.cycle = points.cycle.min(start.elapsed());
        }

        warm_up(arena, &other, &dropper).await;
        warm_up(arena, &dropper, &other).await;
        points.drop_so_many(WARM_UP, &other, &dropper).await;
        tokio::time::sleep(arena.takeover()).await;
        // Whatever this process keeps alive for one lock must not keep the remains of another.
        let beside = dropper.lock("beside").ttl(TTL).acquire().await.unwrap();
        if arena.store == Store::Redlock {
            // A majority grants it. The other nodes get it at the same time, and some a moment later.
            let everywhere = async || arena.probe.places().await.len() >= arena.proxies.len();
            wait_until("all nodes have the lock", everywhere).await.unwrap();
        }
        let its_places = arena.probe.places().await.len();
        let before = clients(arena).await;
        let granted = points.drop_so_many(POINTS, &other, &dropper).await;
        println!("{}: {granted} of {POINTS} were granted before the drop", arena.store.name());
        assert!(granted < POINTS, "no acquisition was dropped under way");
        arena.assert_no_more_left_than(its_places).await;

        let third = arena.near().await;
        for process in [&third, &dropper, &other] {
            // The clean-up goes on after the drop, but not for long.
            let asked = Instant::now();
            let guard = job(process).acquire().await.unwrap();
            arena.assert_in_time(asked);
            guard.release().await.unwrap();
        }
        beside.release().await.unwrap();
        arena.assert_nothing_left().await;
        third.shutdown(Duration::from_secs(1)).await;
        drop(third);
        tokio::time::sleep(arena.takeover()).await;
        let after = clients(arena).await;
        for kind in ["connection", "subscriber", "session", "lease", "proxied"] {
            let count = |clients: &[String]| clients.iter().filter(|client| client.starts_with(kind)).count();
            // A pool may have grown meanwhile, but not above its limit.
            let pooled = if ["session", "proxied"].contains(&kind) { arena.store.most_sessions() } else { 0 };
            let most = count(&before).max(pooled);
            assert!(count(&after) <= most, "{kind}s before: {before:#?}\nafter: {after:#?}");
        }
        assert!(!after.iter().any(|client| client.starts_with("lease")), "leases without holds: {after:#?}");
    });
}

/// Has `one` open whatever it needs to wait, and our own thread whatever it needs to clean up for it.
async fn warm_up(arena: &Arena, one: &Registry, other: &Registry) {
    let guard = job(other).acquire().await.unwrap();
    let waiting = tokio::spawn(job(one).acquire());
    arena.until_waiting(other, 1).await;
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}

/// Where to drop: by the seed, at places spread over a whole cycle of this store, and the connects before it, on this
/// machine.
struct Points {
    random: Rng,
    cycle: Duration,
}

impl Points {
    /// Drops so many acquisitions; tells how many had been granted by then.
    async fn drop_so_many(&mut self, points: u32, other: &Registry, dropper: &Registry) -> u32 {
        let mut granted = 0;
        for point in 0..points {
            // Free; released at some moment around the drop; held throughout.
            let guard = if point % 3 == 0 { None } else { Some(job(other).acquire().await.unwrap()) };
            let released = if point % 3 == 1 { self.moment() } else { self.cycle * 2 };
            let release = async {
                if let Some(guard) = guard {
                    spin(released).await;
                    guard.release().await.unwrap();
                }
            };
            // Between two steps of the future, or at a moment.
            let steps = if point % 2 == 0 { u32::MAX } else { self.random.u32(1..8) };
            let dropped = drop_at(job(dropper).acquire(), steps, self.moment());
            let (acquired, ()) = tokio::join!(dropped, release);
            granted += u32::from(acquired);
        }
        granted
    }

    fn moment(&mut self) -> Duration {
        self.cycle.mul_f64(self.random.f64() * 3.0)
    }
}

/// The clients of the server. For a store without sessions, the count includes the connections of the proxies.
/// For a session store only the server counts: our side may still have a socket that the server has closed.
async fn clients(arena: &Arena) -> Vec<String> {
    let mut clients = arena.probe.clients().await;
    let proxied: usize = if arena.store.is_session() { 0 } else { arena.proxies.iter().map(Proxy::connections).sum() };
    clients.extend((0..proxied).map(|_| "proxied connection".to_owned()));
    clients
}

/// Polls so often or for so long at most, then drops. True if it was granted; then the guard is dropped.
async fn drop_at(acquire: impl Future<Output = Result<Guard>>, steps: u32, moment: Duration) -> bool {
    let mut left = steps;
    let mut acquire = pin!(acquire);
    let stepping = poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        acquire.as_mut().poll(cx).map(|guard| Some(guard.unwrap()))
    });
    tokio::select! {
        biased;
        granted = stepping => granted.is_some(),
        () = spin(moment) => false,
    }
}

/// Passes time in finer steps than the runtime's timer has.
async fn spin(time: Duration) {
    let start = Instant::now();
    // At its end alone: other trials need the processor meanwhile.
    if let Some(most) = time.checked_sub(TIMER) {
        tokio::time::sleep(most).await;
    }
    while start.elapsed() < time {
        tokio::task::yield_now().await;
    }
}
