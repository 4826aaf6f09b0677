//! Refusals of a server: each is its own error, which says whether a retry helps.

use dlock::backends::redis::Redis;
use dlock::{Clock, ErrorKind, Key, Registry, Wait};
use dlock_contract::{Attempt, Backend, Standing};
use dlock_testkit::holds::{claim, confirm, take};
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::{block_until, wait_until};

use super::{MS, SECOND, attempt, blocking, name, open, refusal, refuses, standing_soon, take_soon, with};

async fn server(options: &'static [&'static str]) -> Instance {
    blocking(|| Instance::start(servers::Redis::with(options)).unwrap()).await
}

/// How to bring a server into a state, how to end it, and what a request is then told.
struct Fault {
    begin: &'static [&'static str],
    end: &'static [&'static str],
    kind: ErrorKind,
    says: &'static str,
    code: &'static str,
}

const FAULTS: &[Fault] = &[
    Fault {
        begin: &["CONFIG SET maxmemory 1"],
        end: &["CONFIG SET maxmemory 0"],
        kind: ErrorKind::Outage,
        says: "OOM",
        code: "OOM",
    },
    Fault {
        begin: &["CONFIG SET min-replicas-to-write 1"],
        end: &["CONFIG SET min-replicas-to-write 0"],
        kind: ErrorKind::Outage,
        says: "NOREPLICAS",
        code: "NOREPLICAS",
    },
    Fault {
        begin: &["CONFIG SET save \"3600 1\"", "BGSAVE"],
        end: &["CONFIG SET stop-writes-on-bgsave-error no"],
        kind: ErrorKind::Outage,
        says: "MISCONF",
        code: "MISCONF",
    },
    Fault {
        begin: &["REPLICAOF 127.0.0.1 1"],
        end: &["REPLICAOF NO ONE"],
        kind: ErrorKind::NotPrimary,
        says: "replica",
        code: "READONLY",
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_refusal_of_a_server_is_its_own_error_and_passes_with_its_cause() {
    let server = blocking(|| {
        // A folder stands where the file would be written.
        let server = Instance::start(servers::Redis::with(&["--dbfilename", "taken"])).unwrap();
        std::fs::create_dir(server.folder().join("taken")).unwrap();
        server
    })
    .await;
    // To be a replica for a while counts as a failover.
    let redis = open(&with(&server.url(), "failover_guard=off")).await;
    let held = take(&redis, &claim("held", 60 * SECOND)).await;
    for fault in FAULTS {
        for request in fault.begin {
            server.ask(request).unwrap();
        }
        wait_until("the server refuses writes", async || refuses(&server, "SET probe x", fault.code)).await.unwrap();
        let error = refusal(&redis, &claim("k", SECOND)).await;
        assert_eq!(*error.kind(), fault.kind, "{error}");
        assert!(error.to_string().contains(fault.says), "{error}");
        assert_eq!(error.code(), Some(fault.code), "{error}");
        assert!(error.is_retryable(), "{error}");
        for request in fault.end {
            server.ask(request).unwrap();
        }
        let hold = take_soon(&redis, &claim("k", SECOND), 30 * SECOND).await;
        redis.release(&hold).await.unwrap();
        assert!(matches!(standing_soon(&redis, &held, 30 * SECOND).await, Standing::Renewed(_)), "nothing was lost");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_script_a_foreign_value_and_a_flush_are_told_apart() {
    let server = server(&["--busy-reply-threshold", "50"]).await;
    let redis = open(&server.url()).await;
    let hold = take(&redis, &claim("held", 60 * SECOND)).await;

    // BUSY. The asking connection waits for the script, and is given up.
    let _ = server.ask("SCRIPT FLUSH");
    let addr = server.addr();
    let script = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(addr).unwrap();
        stream.write_all(b"*3\r\n$4\r\nEVAL\r\n$17\r\nwhile true do end\r\n$1\r\n0\r\n").unwrap();
        let _ = stream.read(&mut [0; 64]);
    });
    wait_until("the script keeps the server busy", async || refuses(&server, "PING", "BUSY")).await.unwrap();
    let error = refusal(&redis, &claim("k", SECOND)).await;
    assert!(
        *error.kind() == ErrorKind::Outage && error.is_retryable() && error.to_string().contains("BUSY"),
        "{error}"
    );
    assert_eq!(error.code(), Some("BUSY"));
    server.ask("SCRIPT KILL").unwrap();
    script.join().unwrap();
    // Nor does it matter that all scripts were forgotten (NOSCRIPT).
    assert!(matches!(confirm(&redis, &hold).await, Standing::Renewed(_)));
    assert!(matches!(attempt(&redis, &claim("held", SECOND)).await.unwrap(), Attempt::Contended(_)));

    // WRONGTYPE and a value that is not ours.
    for request in [format!("LPUSH {} x", name("list")), format!("SET {} foreign PX 60000", name("text"))] {
        server.ask(&request).unwrap();
    }
    for key in ["list", "text"] {
        let error = refusal(&redis, &claim(key, SECOND)).await;
        assert!(*error.kind() == ErrorKind::KeyConflict && !error.is_retryable(), "{error}");
    }

    // CLIENT KILL breaks what is under way at most.
    let _ = server.ask("CLIENT KILL TYPE normal");
    assert!(matches!(standing_soon(&redis, &hold, 30 * SECOND).await, Standing::Renewed(_)));
    // FLUSHALL is found by the next renewal.
    server.ask("FLUSHALL").unwrap();
    assert_eq!(confirm(&redis, &hold).await, Standing::Lost);
    let next = take(&redis, &claim("held", SECOND)).await;
    assert!(next.token > hold.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_is_an_outage_and_then_serves() {
    let server = blocking(|| {
        let slow = ["--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024"];
        let recipe = servers::Redis { aof_always: true, ..servers::Redis::with(&slow) };
        let server = Instance::start(recipe).unwrap();
        for n in 0..600 {
            server.ask(&format!("SET filler:{n} {}", "x".repeat(200))).unwrap();
        }
        // As one file of keys, which are loaded one by one.
        server.ask("BGREWRITEAOF").unwrap();
        let written =
            |info: &str| info.contains("aof_rewrite_in_progress:0") && !info.contains("aof_last_rewrite_time_sec:-1");
        block_until("the file is written", || written(&server.ask("INFO persistence").unwrap())).unwrap();
        server
    })
    .await;
    let url = server.url();
    let redis = open(&url).await;
    let hold = take(&redis, &claim("held", 60 * SECOND)).await;
    let restart = tokio::task::spawn_blocking(move || {
        server.restart().unwrap();
        server
    });
    let mut loading = 0;
    let end = tokio::time::Instant::now() + 20 * SECOND;
    while loading == 0 && !restart.is_finished() && tokio::time::Instant::now() < end {
        match Redis::connect(&url, &Clock::system()).await {
            Err(error) => {
                assert!(*error.kind() == ErrorKind::Outage && error.is_retryable(), "{error}");
                loading += usize::from(error.code() == Some("LOADING") && error.to_string().contains("LOADING"));
            }
            Ok(_) => tokio::time::sleep(5 * MS).await,
        }
    }
    let server = restart.await.unwrap();
    assert!(loading > 0, "the server was never seen loading");
    assert!(matches!(standing_soon(&redis, &hold, 30 * SECOND).await, Standing::Renewed(_)));
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_its_primary_that_says_nothing_is_an_outage() {
    let server = server(&["--replica-serve-stale-data", "no"]).await;
    let redis = open(&server.url()).await;
    let hold = take(&redis, &claim("held", 60 * SECOND)).await;
    server.ask("REPLICAOF 127.0.0.1 1").unwrap();
    let error = redis.look(&hold.claim.key).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (&ErrorKind::Outage, Some("MASTERDOWN")), "{error}");
    assert!(error.is_retryable() && error.to_string().contains("MASTERDOWN"), "{error}");
    server.ask("REPLICAOF NO ONE").unwrap();
    assert!(matches!(standing_soon(&redis, &hold, 30 * SECOND).await, Standing::Renewed(_)), "nothing was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_loses_nothing() {
    let server = server(&[]).await;
    let redis = open(&server.url()).await;
    let hold = take(&redis, &claim("held", 60 * SECOND)).await;
    server.pause().unwrap();
    let late = claim("k", 60 * SECOND);
    let error = refusal(&redis, &late).await;
    assert_eq!(*error.kind(), ErrorKind::Outage);
    server.resume().unwrap();
    assert!(matches!(standing_soon(&redis, &hold, 30 * SECOND).await, Standing::Renewed(_)));
    // Given up while it stood still, and carried out when it went on.
    redis.abandon(&late).await.unwrap();
    assert_eq!(server.ask(&format!("EXISTS {}", name("k"))).unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_primary_that_is_a_replica_for_a_while_is_waited_for() {
    let server = server(&[]).await;
    let registry = Registry::new();
    registry.connect("redis", &with(&server.url(), "failover_guard=off")).await.unwrap();
    registry.set_default("redis").unwrap();
    let guard = registry.lock(Key::text("held")).ttl(60 * SECOND).acquire().await.unwrap();
    let stored = crate::names::of(guard.key());
    server.ask("REPLICAOF 127.0.0.1 1").unwrap();
    drop(guard);
    let end = tokio::time::Instant::now() + 30 * SECOND;
    while !server.ask("INFO errorstats").unwrap().contains("errorstat_READONLY") {
        assert!(tokio::time::Instant::now() < end, "the release has not been tried");
        tokio::time::sleep(10 * MS).await;
    }
    let backoff = dlock::Backoff::new(20 * MS, 200 * MS);
    let waiter = registry.lock(Key::text("waited")).ttl(60 * SECOND).wait(Wait::UpTo(30 * SECOND));
    let waiter = waiter.retry(dlock::Retry { times: 1000, backoff: Some(backoff) });
    let waiter = tokio::spawn(async move { waiter.acquire().await });
    tokio::time::sleep(300 * MS).await;
    assert!(!waiter.is_finished());
    server.ask("REPLICAOF NO ONE").unwrap();
    while server.ask(&format!("EXISTS {stored}")).unwrap() != "0" {
        assert!(tokio::time::Instant::now() < end, "the lock stays until its ttl ends");
        tokio::time::sleep(10 * MS).await;
    }
    waiter.await.unwrap().unwrap_or_else(|error| panic!("{error}")).release().await.unwrap();
    registry.shutdown(SECOND).await;

    // A store that is opened on a replica has the wrong URL.
    server.ask("REPLICAOF 127.0.0.1 1").unwrap();
    let error = Redis::connect(&server.url(), &Clock::system()).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::NotPrimary && !error.is_retryable(), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_accepts_no_more_connections_is_an_outage() {
    let server = server(&["--maxclients", "4"]).await;
    let redis = open(&server.url()).await;
    let mut others = Vec::new();
    let error = loop {
        match Redis::connect(&server.url(), &Clock::system()).await {
            Ok(other) => others.push(other),
            Err(error) => break error,
        }
        assert!(others.len() < 8);
    };
    assert!(*error.kind() == ErrorKind::Outage && error.is_retryable(), "{error}");
    take(&redis, &claim("k", SECOND)).await;
}
