//! The wall clock of the server is set forward and back while locks are held.

use std::time::{SystemTime, UNIX_EPOCH};

use dlock::backends::zookeeper::client::{Acls, CreateMode};
use dlock_testkit::clock_jumps::no_jump_moves_the_end_of_a_lock;
use dlock_testkit::servers::{self, Instance, WallClock};

use crate::kit::{opened, raw};

#[tokio::test]
async fn a_jump_of_the_servers_clock_ends_no_session_and_prolongs_none() {
    let clock = WallClock::new().unwrap();
    let server = Instance::start(clock.of(servers::ZooKeeper::default())).unwrap();
    let raw = raw(&server.url()).await;
    let opened = async |port| opened(&format!("zk://127.0.0.1:{port}")).await;
    no_jump_moves_the_end_of_a_lock(&server, opened, async |ahead| {
        clock.set_ahead(ahead).unwrap();
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (made, _) = raw.create("/made-", b"", &options).await.unwrap();
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
        let shown = (made.ctime - machine) / 1000;
        assert!((shown - ahead).abs() < 600, "the server shows {shown} s, so nothing is proven");
    })
    .await;
}
