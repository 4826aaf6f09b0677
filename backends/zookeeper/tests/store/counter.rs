//! The end of the counter from which the servers number the nodes of a line.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dlock_contract::{Attempt, Backend, Exchange, Signal};
use dlock_testkit::holds::{claim_on, stand, take, token, until};
use dlock_testkit::wait_until;

use crate::kit::{line, lock, opened, own, path, raw};

/// Sets the counter of a node in the data of a server that is down.
fn set(data: &Path, node: &str, counter: i32) {
    let classes =
        ["zookeeper", "zookeeper-jute", "slf4j-nop"].map(|jar| format!("/usr/share/java/{jar}.jar")).join(":");
    let mut java = Command::new("java");
    java.args(["-XX:TieredStopAtLevel=1", "-cp", &classes]);
    java.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/store/Counter.java"));
    let done = java.arg(data).args([node, &counter.to_string()]).output().expect("run `cargo xtask servers`");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test]
async fn the_order_outlives_the_end_of_the_counter() {
    let server = own();
    let (one, other) = (opened(&server.url()).await, opened(&server.url()).await);
    let key = lock("counter");
    let claim = || claim_on(&key, Duration::from_secs(30), |_| ());
    let before = take(&one, &claim()).await;
    one.release(&before).await.unwrap();
    let place = path(&one, &key);
    server.kill9().unwrap();
    // The last number that dlock uses is 1 000 000 before the end.
    set(&server.folder().join("data"), &place, i32::MAX - 1_000_001);
    server.restart().unwrap();

    let raw = raw(&server.url()).await;
    wait_until("the connections", async || one.ready().await.is_ok() && other.ready().await.is_ok()).await.unwrap();
    let first = take(&one, &claim()).await;
    let second = claim();
    let mut waits = stand(&other, &second).await;
    // From here on no number is used. None of them may take itself for the first.
    for store in [&one, &other] {
        let answer = store.try_acquire(&claim(), until()).await.unwrap();
        assert!(matches!(answer, Attempt::Contended(_)), "{answer:?}");
    }
    let nodes = line(&raw, &place).await;
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    assert!(nodes[0].ends_with("2146483646") && nodes[1].ends_with("2146483647"), "{nodes:?}");

    let third = claim();
    let soon = dlock::Clock::system().now().after(Duration::from_secs(60));
    let (_, passed) = one.release_to(&first, &third, soon).await.unwrap();
    assert!(passed.is_none(), "{passed:?}");
    let Signal::Granted(hold) = waits.signal.as_mut().unwrap().await.unwrap() else { panic!() };
    assert!(token(&hold) > token(&first) && token(&first) > token(&before));
    assert!(matches!(one.try_acquire(&third, until()).await.unwrap(), Attempt::Contended(_)));
    other.release(&hold).await.unwrap();
    // The line is empty, and the counter begins anew.
    let last = take(&one, &third).await;
    assert!(token(&last) > token(&hold));
    assert!(line(&raw, &place).await[0].ends_with("-lock-0000000000"));
    one.release(&last).await.unwrap();
}
