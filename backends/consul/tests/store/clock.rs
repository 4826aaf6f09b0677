//! The wall clock of the server is set forward and back while locks are held.

use std::time::Instant;

use dlock::Clock;
use dlock::backends::consul::Consul;
use dlock_contract::{Attempt, Backend, Queue};
use dlock_testkit::clock_jumps::no_jump_moves_the_end_of_a_lock;
use dlock_testkit::holds::{claim, take};
use dlock_testkit::lateness;
use dlock_testkit::servers::{self, Instance, VdsoClock};

use crate::server::{LONG, Raw, SECOND, name};

async fn open(port: u16, delay: &str) -> Consul {
    Consul::open(&format!("consul://127.0.0.1:{port}?lock_delay={delay}"), &Clock::system()).await.unwrap()
}

fn jump(clock: &VdsoClock, ahead: i64) {
    clock.set_ahead(ahead).unwrap();
    let shown = clock.shown_ahead().unwrap();
    assert!((shown - ahead).abs() < 600, "the server shows {shown} s, so nothing is proven");
}

#[tokio::test]
async fn a_jump_of_the_servers_clock_ends_no_session_and_prolongs_none() {
    let server = Instance::start(servers::Consul::default()).unwrap();
    let clock = VdsoClock::of(&server).unwrap();
    let opened = async |port| open(port, "0s").await;
    no_jump_moves_the_end_of_a_lock(&server, opened, async |ahead| jump(&clock, ahead)).await;
}

#[tokio::test]
async fn a_jump_of_the_servers_clock_neither_ends_nor_prolongs_a_lock_delay() {
    lateness::watch();
    let server = Instance::start(servers::Consul::default()).unwrap();
    let clock = VdsoClock::of(&server).unwrap();
    let (store, raw) = (open(server.port(), "4s").await, Raw::at(&server.url()));
    for ahead in [3600, -3600] {
        let claimed = claim("delayed", LONG);
        let hold = take(&store, &claimed).await;
        let begun = Instant::now();
        raw.destroy(&raw.holder(&name(&claimed)).unwrap());
        let destroyed = Instant::now();
        jump(&clock, ahead);
        let next = loop {
            match store.try_acquire(&claim("delayed", LONG), Queue::Leave).await.unwrap() {
                Attempt::Acquired(next) => break next,
                _ => tokio::time::sleep(SECOND / 20).await,
            }
            // Much less than the jump.
            lateness::assert_within(SECOND * 20, destroyed, &format!("the lock-delay after a jump to {ahead} s"));
        };
        assert!(begun.elapsed() >= SECOND * 4, "a jump to {ahead} s ended the lock-delay");
        store.release(&next).await.unwrap();
        drop(hold);
    }
}
