//! Three servers, whose leader is killed.

use std::time::Instant;

use dlock_contract::{Attempt, Backend, Queue, Standing};
use dlock_testkit::holds::{self, claim, take, token};
use dlock_testkit::servers::Instance;
use dlock_testkit::{lateness, wait_until};

use crate::server::{LONG, Raw, SECOND, fresh, open, renewal};
use crate::three::three;

/// The address at which the leader speaks to the other servers, as one server knows it. Nobody leads: it is empty.
fn leader(by: &Instance) -> String {
    Raw::at(&by.url()).json("GET /v1/status/leader").as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holders_lock_is_free_in_time_although_the_leader_is_killed_and_a_living_one_keeps_its_lock() {
    lateness::watch();
    let servers = tokio::task::spawn_blocking(|| Instance::start_all(three()).unwrap()).await.unwrap();
    let led = leader(&servers[0]);
    let own_address = |server: &Instance| {
        let own = Raw::at(&server.url()).json("GET /v1/agent/self");
        format!("127.0.0.1:{}", own["Member"]["Tags"]["port"].as_str().unwrap())
    };
    let (leads, others): (Vec<_>, Vec<_>) = servers.iter().partition(|server| own_address(server) == led);
    let [holder, waiter] = &others[..] else { panic!("of {led} no server knows that it leads") };
    let url = |server: &Instance| format!("{}?lock_delay=1s", server.url());
    let (store, other) = (open(&url(holder)).await.unwrap(), open(&url(waiter)).await.unwrap());
    let ttl = SECOND * 2;
    let (dying, living) = (claim(&fresh("dies"), ttl), claim(&fresh("lives"), LONG));
    // At the agent that is killed: its node becomes critical by gossip.
    let checked = open(&format!("{}&checks=serfHealth", url(leads[0]))).await.unwrap();
    let unchecked = open(&url(leads[0])).await.unwrap();
    let (with_check, without) = (claim(&fresh("checked"), LONG), claim(&fresh("unchecked"), LONG));
    let critical = take(&checked, &with_check).await;
    take(&unchecked, &without).await;
    let kept = take(&store, &living).await;
    let dead = take(&store, &dying).await;
    let taken = Instant::now();
    leads[0].kill9().unwrap();
    wait_until("another leader", async || {
        let next = leader(waiter);
        // It may be named before it answers.
        !next.is_empty() && next != led && Raw::at(&waiter.url()).ask("GET /v1/kv/?keys&consistent").is_ok()
    })
    .await
    .unwrap();
    let led_anew = Instant::now();
    let next = holds::claim_on(&dying.key, LONG, |_| ());
    let hold = holds::wait(&other, &next, SECOND * 30).await;
    assert!(taken.elapsed() >= ttl, "the lock was free before its ttl");
    // A new leader counts anew: twice the ttl, and then the lock-delay. It leads for a while before it is seen to.
    lateness::assert_within(other.profile().takeover(ttl), led_anew, "the next grant after the new leader");
    assert!(token(&hold) > token(&dead));
    assert_eq!(renewal(&store, &dead).await.unwrap(), Standing::Lost);
    assert!(matches!(renewal(&store, &kept).await.unwrap(), Standing::Renewed(_)));
    // Long before the ttl of its session.
    let next = holds::wait(&other, &holds::claim_on(&with_check.key, LONG, |_| ()), SECOND * 30).await;
    assert!(token(&next) > token(&critical));
    let refused = other.try_acquire(&holds::claim_on(&without.key, LONG, |_| ()), Queue::Leave).await.unwrap();
    assert!(matches!(refused, Attempt::Contended(_)), "without a check the node's health ends no hold");
}
