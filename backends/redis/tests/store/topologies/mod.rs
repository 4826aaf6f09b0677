//! Redis as it is run: behind sentinels, as a cluster, with TLS and accounts; and what happens when a part of it fails.

mod accounts;
mod arrivals;
mod black_hole;
mod carried;
mod cluster;
mod eviction;
mod faults;
mod forgetful;
mod looks;
mod native;
mod nodes;
mod promoted;
mod push_ways;
mod pushed;
mod replicas;
mod restarts;
mod sentinel;
mod slots;
mod storms;
mod tls;
mod unasked;
mod unheard;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::backends::redis::Redis;
use dlock::{Clock, Error};
use dlock_contract::{Attempt, Backend, Claim, Hold, Queue, Signal, Standing, Wake};
use dlock_testkit::servers::{Instance, RedisCluster};

use crate::names::of_text as name;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

async fn open(url: &str) -> Redis {
    // On a busy machine even a server that lives may be late.
    let end = Instant::now() + 30 * SECOND;
    loop {
        match Redis::connect(url, &Clock::system()).await {
            Ok(redis) => return redis,
            Err(error) => assert!(error.is_retryable() && Instant::now() < end, "{error}"),
        }
    }
}

/// The connections that clients have to this node; who asks speaks an older protocol.
fn connections(cluster: &RedisCluster, node: usize) -> HashSet<String> {
    let list = cluster.nodes[node].ask("CLIENT LIST").unwrap();
    let ours = list.lines().filter(|line| line.contains(" resp=3"));
    ours.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Runs blocking work beside the runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Waits for the push that brings a lock. One that is late, or comes while connections begin anew, only says that it is
/// worth to ask.
async fn handed(redis: &Redis, claim: &Arc<Claim>, wake: &mut Wake) -> Hold {
    let limit = 60 * SECOND;
    match tokio::time::timeout(limit, wake.signal.as_mut().unwrap()).await.unwrap().unwrap() {
        Signal::Granted(hold) => hold,
        _ => take_soon(redis, claim, limit).await,
    }
}

/// Asks until the lock is granted, through outages; all errors must be of those that pass.
async fn take_soon(redis: &Redis, claim: &Arc<Claim>, limit: Duration) -> Hold {
    let end = Instant::now() + limit;
    loop {
        let last = match attempt(redis, claim).await {
            Ok(Attempt::Acquired(hold)) => return hold,
            Ok(_) => "contended".to_owned(),
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                error.to_string()
            }
        };
        assert!(Instant::now() < end, "not within {limit:?}: {last}");
        tokio::time::sleep(20 * MS).await;
    }
}

/// One attempt with the patience of the engine.
async fn attempt(redis: &Redis, claim: &Arc<Claim>) -> Result<Attempt, Error> {
    let answer = tokio::time::timeout(5 * SECOND, redis.try_acquire(claim, Queue::Leave)).await;
    answer.unwrap_or_else(|_| Err(Error::outage("no answer")))
}

/// The standing of a hold, as soon as it is known.
async fn standing_soon(redis: &Redis, hold: &Hold, limit: Duration) -> Standing {
    let end = Instant::now() + limit;
    loop {
        let renewal = async { redis.renew(&[hold]).await.remove(0) };
        let answer = tokio::time::timeout(2 * SECOND, renewal).await;
        match answer.unwrap_or_else(|_| Err(Error::outage("no answer"))) {
            Ok(standing) => return standing,
            Err(error) => assert!(Instant::now() < end, "not within {limit:?}: {error}"),
        }
        tokio::time::sleep(20 * MS).await;
    }
}

/// Whether the server refuses a request of another client with this code.
fn refuses(server: &Instance, request: &str, code: &str) -> bool {
    server.ask(request).is_err_and(|error| error.to_string().contains(code))
}

async fn refusal(redis: &Redis, claim: &Arc<Claim>) -> Error {
    match attempt(redis, claim).await {
        Err(error) => error,
        Ok(other) => panic!("{other:?}"),
    }
}

fn with(url: &str, parameter: &str) -> String {
    format!("{url}{}{parameter}", if url.contains('?') { '&' } else { '?' })
}
