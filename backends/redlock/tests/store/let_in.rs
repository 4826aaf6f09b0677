//! Nodes that accept no new connection any more while a lock is held: the open connections are enough.

use dlock::{Backoff, Key, Registry, Retry, Wait};
use dlock_testkit::block_until;
use dlock_testkit::servers::{Instance, Redis, redlock_url};

use crate::cluster::SECOND;

/// Lets nobody in: each connection would be one too many, and the password is another one. Ends the connection of
/// dlock's own thread too, if asked for: it was opened after the caller's.
fn shut(node: &Instance, kills: bool) {
    let mut raw = redis::Client::open(node.url()).unwrap().get_connection().unwrap();
    let mut ask = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).query::<String>(&mut raw).unwrap();
    if kills {
        let ours = |list: String| list.lines().filter(|line| line.contains("user=app")).count();
        block_until("dlock's own thread has a connection", || ours(ask(&["CLIENT", "LIST"])) == 2).unwrap();
    }
    ask(&["ACL", "SETUSER", "app", "resetpass", ">other"]);
    ask(&["CONFIG", "SET", "maxclients", "1"]);
    if kills {
        let list = ask(&["CLIENT", "LIST"]);
        let ours = list.lines().filter(|line| line.contains("user=app"));
        let id = |line: &str| line.strip_prefix("id=").unwrap().split(' ').next().unwrap().parse::<u64>().unwrap();
        let ids: Vec<_> = ours.map(id).collect();
        assert!(ids.len() == 2, "{list}");
        let latest = ids.iter().max().unwrap().to_string();
        redis::cmd("CLIENT").arg(&["KILL", "ID", &latest]).query::<u64>(&mut raw).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_outlives_nodes_that_accept_no_connections_any_more() {
    for kills in [false, true] {
        let recipe = |_| Redis { aof_always: true, ..Redis::default() };
        let nodes = Instance::start_all((0..3).map(recipe)).unwrap();
        nodes.iter().for_each(|node| drop(node.ask("ACL SETUSER app on >pw ~* &* +@all").unwrap()));
        let registry = Registry::new();
        let url = redlock_url(&nodes).replace("redlock://", "redlock://app:pw@");
        registry.connect("store", &url).await.unwrap();
        registry.set_default("store").unwrap();
        // The test waits for longer than the ttl, so that is short, and a busy machine may need more than one attempt.
        let retry = Retry { times: 100, backoff: Some(Backoff::new(SECOND / 50, SECOND / 5)) };
        let lock = registry.lock(Key::text("held")).ttl(4 * SECOND).wait(Wait::UpTo(60 * SECOND)).retry(retry);
        let guard = lock.acquire().await.unwrap();
        nodes.iter().for_each(|node| shut(node, kills));
        tokio::time::sleep(6 * SECOND).await;
        guard.check().unwrap();
        guard.release().await.unwrap();
        registry.shutdown(SECOND).await;
    }
}
