//! Nodes that leave the catalog: a server that is cleaned up after its death, an agent that leaves or is forced to, an agent
//! that comes back under another name, and the node of dlock's own. All settings of the servers are Consul's defaults.

use dlock::ErrorKind;
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::{self, claim, stand, take};
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::{Proxy, wait_until};

use crate::server::{LONG, Raw, SECOND, fresh, name, open, own, renewal};
use crate::three::three;

fn nodes(raw: Raw) -> Vec<String> {
    let nodes = raw.json("GET /v1/catalog/nodes");
    nodes.as_array().unwrap().iter().map(|node| node["Node"].as_str().unwrap().to_owned()).collect()
}

async fn gone(raw: Raw, node: &str) {
    wait_until("the node to leave the catalog", async || !nodes(raw).iter().any(|known| known == node)).await.unwrap();
}

async fn start(recipes: Vec<servers::Consul>) -> Vec<Instance> {
    tokio::task::spawn_blocking(|| Instance::start_all(recipes).unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_with_its_agent_and_is_cleaned_up_ends_no_lock() {
    let servers = start(three()).await;
    let led = Raw::at(&servers[0].url()).json("GET /v1/status/leader");
    let leads = |server: &Instance| {
        let own = Raw::at(&server.url()).json("GET /v1/agent/self");
        led == format!("127.0.0.1:{}", own["Member"]["Tags"]["port"].as_str().unwrap())
    };
    let (at, dying) = servers.iter().enumerate().find(|(_, server)| !leads(server)).unwrap();
    let survivor = servers.iter().find(|server| server.port() != dying.port()).unwrap();
    let raw = Raw::at(&survivor.url());
    let (store, other) = (open(&dying.url()).await.unwrap(), open(&survivor.url()).await.unwrap());
    let held = claim(&fresh("cleaned up"), LONG);
    take(&store, &held).await;
    let session = raw.holder(&name(&held)).unwrap();
    dying.kill9().unwrap();
    gone(raw, &format!("n{at}")).await;
    assert_eq!(raw.holder(&name(&held)), Some(session), "the clean-up ended the lock of a holder that cannot be told");
    stand(&other, &holds::claim_on(&held.key, LONG, |_| ())).await;
}

/// A node leaves the catalog a minute after its agent.
mod thorough {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_agent_that_leaves_or_comes_back_under_another_name_ends_no_lock() {
        let server = servers::Consul::default();
        let join = format!("-retry-join=127.0.0.1:{}", server.gossip_port);
        let client = |node: &str| {
            let extra = ["-server=false", "-bootstrap-expect=0", &format!("-node={node}"), &join].map(str::to_owned);
            servers::Consul { extra: extra.into(), ..servers::Consul::default() }
        };
        let agents = start(vec![server, client("first"), client("second")]).await;
        let [server, first, second] = &agents[..] else { unreachable!() };
        let raw = Raw::at(&server.url());
        let (proxy, url) = Proxy::in_front_of(&first.url()).unwrap();
        let store = open(&url).await.unwrap();
        let held = claim(&fresh("leaves"), LONG);
        let hold = take(&store, &held).await;
        let ended = tokio::spawn(hold.session.as_ref().unwrap().ended().unwrap());

        // A client agent leaves its cluster on SIGTERM.
        Raw::at(&first.url()).ask("PUT /v1/agent/leave").unwrap();
        gone(raw, "first").await;
        let address = proxy.addr();
        drop(proxy);
        let _proxy = Proxy::start_at(address, second.addr()).unwrap();
        wait_until("the second agent", async || store.ready().await.is_ok()).await.unwrap();
        assert!(
            matches!(renewal(&store, &hold).await.unwrap(), Standing::Renewed(_)),
            "the agent's end was the lock's"
        );
        let next = claim(&fresh("after"), LONG);
        take(&store, &next).await;

        second.kill9().unwrap();
        let forced = async || {
            raw.ask("PUT /v1/agent/force-leave/second").unwrap();
            !nodes(raw).iter().any(|known| known == "second")
        };
        wait_until("the node to be forced out", forced).await.unwrap();
        for claim in [held, next] {
            assert!(raw.holder(&name(&claim)).is_some(), "the agent's end was the lock's");
        }
        assert!(!ended.is_finished());
    }
}

#[tokio::test]
async fn the_node_of_dlocks_own_is_registered_again_after_an_operator_took_it_away() {
    let server = own();
    let (store, raw) = (open(&server.url()).await.unwrap(), Raw::at(&server.url()));
    let held = claim(&fresh("deregistered"), LONG);
    let hold = take(&store, &held).await;
    let ended = hold.session.as_ref().unwrap().ended().unwrap();
    let node = raw.session(&raw.holder(&name(&held)).unwrap())["Node"].as_str().unwrap().to_owned();
    raw.ask(&format!(r#"PUT /v1/catalog/deregister {{"Node":"{node}"}}"#)).unwrap();
    tokio::time::timeout(SECOND * 60, ended).await.expect("the holder was not told");
    assert_eq!(renewal(&store, &hold).await.unwrap(), Standing::Lost);
    let refused = store.try_acquire(&holds::claim_on(&held.key, LONG, |_| ()), Queue::Leave).await.unwrap();
    assert!(matches!(refused, Attempt::Contended(_)), "no lock-delay");
    store.ready().await.unwrap();
    let next = take(&store, &claim(&fresh("again"), LONG)).await;
    assert_eq!(store.release(&next).await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_locks_of_another_datacenter_are_taken_through_an_agent_of_this_one() {
    let ports = [dlock_testkit::servers::free_port(), dlock_testkit::servers::free_port()];
    let there = |at: usize| servers::Consul {
        extra: vec![
            format!("-datacenter=dc{at}"),
            format!("-serf-wan-port={}", ports[at]),
            format!("-retry-join-wan=127.0.0.1:{}", ports[1 - at]),
            "-retry-interval-wan=1s".into(),
            "-advertise-wan=127.0.0.1".into(),
        ],
        ..servers::Consul::default()
    };
    let agents = start(vec![there(0), there(1)]).await;
    let raw = Raw::at(&agents[0].url());
    wait_until("the other datacenter", async || {
        raw.ask("GET /v1/kv/?keys&dc=dc1").is_ok() || {
            raw.json("GET /v1/catalog/datacenters").as_array().is_some_and(|known| known.len() == 2)
        }
    })
    .await
    .unwrap();
    let (near, far) =
        (open(&agents[1].url()).await.unwrap(), open(&format!("{}?dc=dc1", agents[0].url())).await.unwrap());
    let held = claim(&fresh("far"), LONG);
    let hold = take(&far, &held).await;
    let ended = hold.session.as_ref().unwrap().ended().unwrap();
    stand(&near, &holds::claim_on(&held.key, LONG, |_| ())).await;
    assert!(Raw::at(&agents[0].url()).entry(&name(&held)).is_null());
    let there = Raw::at(&agents[1].url());
    there.destroy(&there.holder(&name(&held)).unwrap());
    tokio::time::timeout(SECOND * 60, ended).await.expect("the holder was not told");
}

#[tokio::test]
async fn with_checks_a_holder_stops_before_the_lock_delay_of_a_session_that_ended_ends() {
    let server = own();
    let store = open(&format!("{}?checks=serfHealth&lock_delay=12s", server.url())).await.unwrap();
    assert_eq!(store.profile().ttl.max, SECOND * 12);
    let error = open(&format!("{}?checks=serfHealth&lock_delay=0s", server.url())).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "lock_delay"), "{error}");
}
