//! Connections that were left are ended in the server: by one caller, and again after the server was busy.

use std::time::Duration;

use dlock::Clock;
use dlock::backends::redis::Redis;
use dlock_contract::{Backend, Queue};
use dlock_testkit::block_until;
use dlock_testkit::holds::{claim, take};
use futures::future::join_all;
use tokio::runtime::{Builder, Runtime};

use super::database::Database;

/// No lock of these tests ends by itself.
const LONG: Duration = Duration::from_secs(600);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A store whose connection in another runtime was left, as that runtime has ended.
fn with_one_left(url: &str, here: &Runtime) -> Redis {
    let redis = here.block_on(Redis::connect(url, &Clock::system())).unwrap();
    let ending = runtime();
    here.block_on(take(&redis, &claim("here", LONG)));
    ending.block_on(take(&redis, &claim("there", LONG)));
    drop(ending);
    redis
}

/// How many `CLIENT KILL` the server has run, and how many it has refused.
fn kills(raw: &mut redis::Connection) -> (u64, u64) {
    let info: String = redis::cmd("INFO").arg("commandstats").query(raw).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_client|kill:")).unwrap_or_default();
    let field = |name| line.split(',').find_map(|field| field.strip_prefix(name)?.parse().ok()).unwrap_or(0);
    (field("calls="), field("rejected_calls="))
}

#[test]
fn only_one_of_many_callers_ends_a_connection_that_was_given_up() {
    let (server, here) = (Database::own(&[]), runtime());
    let redis = with_one_left(&server.url, &here);
    here.block_on(async {
        let claims: Vec<_> = (0..50).map(|_| claim("here", LONG)).collect();
        let answers = join_all(claims.iter().map(|claim| redis.try_acquire(claim, Queue::Leave))).await;
        assert!(answers.iter().all(Result::is_ok));
    });
    assert_eq!(kills(&mut server.raw()), (1, 0));
}

#[test]
fn a_busy_server_is_asked_again_to_end_a_connection_that_was_given_up() {
    let (server, here) = (Database::own(&["--busy-reply-threshold", "1"]), runtime());
    let redis = with_one_left(&server.url, &here);
    let mut raw = server.raw();
    let mut busy = server.raw();
    let script = std::thread::spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut busy));
    let is_busy = |raw: &mut redis::Connection| redis::cmd("PING").query::<()>(raw).is_err();
    block_until("the server is busy", || is_busy(&mut raw)).unwrap();
    let error = here.block_on(redis.try_acquire(&claim("k", LONG), Queue::Leave)).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let () = redis::cmd("SCRIPT").arg("KILL").query(&mut raw).unwrap();
    script.join().unwrap().unwrap_err();
    block_until("the server answers", || !is_busy(&mut raw)).unwrap();
    assert_eq!(kills(&mut raw), (0, 1));
    here.block_on(take(&redis, &claim("k", LONG)));
    assert_eq!(kills(&mut raw), (1, 1));
    here.block_on(take(&redis, &claim("k2", LONG)));
    assert_eq!(kills(&mut raw), (1, 1));
}
