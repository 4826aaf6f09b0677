//! The wall clock of the server is set forward and back while locks are held.

use dlock::Clock;
use dlock::backends::etcd::Etcd;
use dlock_testkit::clock_jumps::no_jump_moves_the_end_of_a_lock;
use dlock_testkit::servers::VdsoClock;

use crate::server::own;

#[tokio::test]
async fn a_jump_of_the_servers_clock_ends_no_lease_and_prolongs_none() {
    let server = own();
    let clock = VdsoClock::of(&server).unwrap();
    let open = async |port| Etcd::open(&format!("etcd://127.0.0.1:{port}"), &Clock::system()).await.unwrap();
    no_jump_moves_the_end_of_a_lock(&server, open, async |ahead| {
        clock.set_ahead(ahead).unwrap();
        let shown = clock.shown_ahead().unwrap();
        assert!((shown - ahead).abs() < 600, "the server shows {shown} s, so nothing is proven");
    })
    .await;
}
