//! Servers that accept no new connection any more while a lock is held: the open connections are enough.

use std::time::{Duration, Instant};

use dlock::{Guard, Key, Registry};
use dlock_testkit::servers::Instance;
use dlock_testkit::{lateness, wait_until};
use futures::future::join_all;

use super::database::{Database, SECOND};

/// A renewal may be late on a busy machine, and may have to find another connection meanwhile.
const TTL: Duration = Duration::from_secs(4);

/// Lets nobody in: each connection would be one too many, and the password is another one. Ends the connection of our
/// own thread too, if asked for: it was opened after the caller's.
fn shut(server: &Instance, kills: bool) {
    let mut raw = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut ask = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).query::<String>(&mut raw).unwrap();
    ask(&["ACL", "SETUSER", "app", "resetpass", ">other"]);
    ask(&["CONFIG", "SET", "maxclients", "1"]);
    let list = ask(&["CLIENT", "LIST"]);
    let ours = list.lines().filter(|line| line.contains("user=app"));
    let ids = ours.map(|line| line.strip_prefix("id=").unwrap().split(' ').next().unwrap().parse::<u64>().unwrap());
    let ids: Vec<_> = ids.collect();
    if kills {
        assert!(ids.len() == 2, "{list}");
        let latest = ids.iter().max().unwrap().to_string();
        redis::cmd("CLIENT").arg(&["KILL", "ID", &latest]).query::<u64>(&mut raw).unwrap();
    }
}

fn account(server: &Instance) -> String {
    server.ask("ACL SETUSER app on >pw ~* &* +@all").unwrap();
    format!("redis://app:pw@{}", server.addr())
}

/// Whether a hold outlives what happens then. `None`: this process was not run for so long that the hold had to end.
async fn outlives(url: &str, then: impl FnOnce()) -> Option<()> {
    lateness::watch();
    let registry = Registry::new();
    registry.connect("store", url).await.unwrap();
    registry.set_default("store").unwrap();
    // `plain` under each layout.
    let guard = acquired(&registry).await;
    let began = Instant::now();
    then();
    tokio::time::sleep(TTL * 3 / 2).await;
    let outlived = match guard.check() {
        Ok(()) => {
            guard.release().await.unwrap();
            Some(())
        }
        Err(error) => {
            assert!(lateness::since(began) > TTL / 2, "{url}: {error}");
            None
        }
    };
    registry.shutdown(SECOND).await;
    outlived
}

/// Repeats the trial with new servers until this process was never kept from running.
async fn once_in_time(trial: impl AsyncFn() -> Option<()>) {
    for _ in 0..10 {
        if trial().await.is_some() {
            return;
        }
    }
    panic!("this machine was too slow each time: nothing is proven");
}

/// A replica on a busy machine may be late.
async fn acquired(registry: &Registry) -> Guard {
    for _ in 0..20 {
        match registry.lock(Key::text("plain")).ttl(TTL).acquire().await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.to_string().contains("replicas"), "{error}"),
        }
    }
    panic!("no replica is ever in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_outlives_a_server_that_accepts_no_connections_any_more() {
    let trial = async |parameters| {
        let server = Database::own(&[]).server;
        let url = format!("{}/{parameters}", account(&server));
        let replica = Database::own(&[]).server;
        if parameters == "?wait_replicas=1" {
            replica.ask(&format!("REPLICAOF 127.0.0.1 {}", server.port())).unwrap();
            let follows = async || server.ask("INFO replication").unwrap().contains("state=online");
            wait_until("the replica follows", follows).await.unwrap();
        }
        outlives(&url, || shut(&server, false)).await
    };
    let all = ["", "?wait_replicas=1", "?keys=literal", "?layout=redisson"];
    join_all(all.map(|parameters| once_in_time(async move || trial(parameters).await))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_cannot_connect_goes_over_any_connection_of_the_store() {
    once_in_time(async || {
        let server = Database::own(&[]).server;
        outlives(&account(&server), || shut(&server, true)).await
    })
    .await;
}
