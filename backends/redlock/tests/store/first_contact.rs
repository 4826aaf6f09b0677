//! The errors of a first contact that fails. Each names the nodes, what is wrong and what to write.
//! `docs/first-contact.md` has the table: `DLOCK_WRITE=1` writes it again.

use std::net::TcpListener;

use dlock::Registry;
use dlock_testkit::servers::{Instance, Redis, RedisTls, free_port};
use dlock_testkit::{Mode, Proxy, first_contact_table, first_contact_text, server_that_says};

use crate::cluster::Cluster;

#[tokio::test]
async fn each_fault_of_a_first_contact_has_its_text() {
    let cluster = Cluster::start();
    let [a, b, c] = [0, 1, 2].map(|node| cluster.nodes[node].addr());
    let secured = Redis { extra: vec!["--requirepass".into(), "right".into()], ..Redis::default() };
    let secured = Instance::start(secured).unwrap();
    // By default 10,000 above its port, where the kernel takes ports for outgoing connections.
    let bus = free_port().to_string();
    let extra = ["--cluster-enabled", "yes", "--cluster-port", &bus].map(str::to_owned).to_vec();
    let clustered = Instance::start(Redis { extra, ..Redis::default() }).unwrap();
    clustered.ask("CLUSTER ADDSLOTSRANGE 0 16383").unwrap();
    cluster.nodes[3].ask("CONFIG SET maxmemory-policy allkeys-lru").unwrap();
    cluster.nodes[4].ask(&format!("REPLICAOF 127.0.0.1 {}", a.port())).unwrap();
    let [evicting, replica] = [3, 4].map(|node| cluster.nodes[node].addr());
    let double = Proxy::start(a).unwrap();
    let old = Proxy::start(c).unwrap();
    old.set(Mode::Rewrite { from: "redis_version:7.", to: "redis_version:6." });
    let tls = RedisTls::start().unwrap();
    for node in &cluster.nodes[..3] {
        node.ask("ACL SETUSER few on >pw ~* &* +@all -incrby").unwrap();
    }
    let silent = [(); 2].map(|()| server_that_says(None));
    let other = format!("127.0.0.1:{}", server_that_says(Some("HTTP/1.1 400 Bad Request\r\n\r\n")));
    // Two at once, so that they differ.
    let nobody = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [one, two] = nobody.map(|listener| listener.local_addr().unwrap());
    let with = |node: &dyn std::fmt::Display| format!("{a},{b},{node}");
    let mut rows = Vec::new();
    for (fault, nodes) in [
        ("refused by a majority", format!("{a},{one},{two}")),
        ("unknown name of a majority", format!("{a},nowhere.invalid:7001,nowhere.invalid:7002")),
        ("silence of a majority", format!("{a},127.0.0.1:{},127.0.0.1:{}", silent[0], silent[1])),
        ("wrong protocol", with(&other)),
        ("wrong password", with(&secured.addr())),
        ("TLS wanted by a majority", format!("{a},127.0.0.1:{0},localhost:{0}", tls.port)),
        ("no right", format!("few:pw@{a},{b},{c}")),
        ("no such database", format!("{a},{b},{c}/16")),
        ("read-only", with(&replica)),
        ("too old", with(&old.addr())),
        ("a node that may evict locks", with(&evicting)),
        ("wrong topology: an even number", format!("{a},{b}")),
        ("wrong topology: one node under two names", with(&double.addr())),
        ("wrong topology: a node of a cluster", with(&clustered.addr())),
    ] {
        let error = Registry::new().connect("locks", &format!("redlock://{nodes}")).await.expect_err(fault);
        let hosts = nodes.split('/').next().unwrap_or_default();
        let ports: Vec<u16> = hosts
            .split(',')
            .map(|node| node.rsplit_once(':').map_or(6379, |(_, port)| port.parse().unwrap()))
            .collect();
        rows.push((fault, first_contact_text(error.message(), &ports, "")));
    }
    first_contact_table("redlock", &rows);
}
