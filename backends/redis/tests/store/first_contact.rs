//! The errors of a first contact that fails. Each names the host, the port, what is wrong and what to write.
//! `docs/first-contact.md` has the table: `DLOCK_WRITE=1` writes it again.

use dlock::Registry;
use dlock_testkit::servers::{Instance, Redis, RedisCluster, RedisTls, Sentinel};
use dlock_testkit::{first_contact_table, first_contact_text, port_of_nobody, server_that_says};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_first_contact_has_its_text() {
    let start = |recipe: Redis| Instance::start(recipe).unwrap();
    let server = start(Redis::default());
    let at = server.port();
    let url = format!("redis://127.0.0.1:{at}");
    server.ask("ACL SETUSER few on >pw ~* &* +@all -incrby").unwrap();
    let replica = start(Redis::with(&["--replicaof", &format!("127.0.0.1 {at}")]));
    let tls = RedisTls::start().unwrap();
    let cluster = RedisCluster::start(3, 0, false, &[]).unwrap();
    let node = cluster.nodes[0].port();
    let sentinel = Instance::start(Sentinel { primary: at, down_after_ms: 60_000, extra: Vec::new() }).unwrap();
    let watched = sentinel.port();
    let nobody = port_of_nobody();
    let (silent, other) = (server_that_says(None), server_that_says(Some("HTTP/1.1 400 Bad Request\r\n\r\n")));
    let query = tls.url_at(at).split_once('?').unwrap().1.to_owned();
    let old = server_that_says(Some("-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n"));
    let mut rows = Vec::new();
    for (fault, url, port) in [
        ("refused", format!("redis://127.0.0.1:{nobody}"), nobody),
        ("unknown name", "redis://nowhere.invalid".to_owned(), 6379),
        ("silent", format!("redis://127.0.0.1:{silent}"), silent),
        ("wrong protocol", format!("redis://127.0.0.1:{other}"), other),
        ("TLS wanted", format!("redis://127.0.0.1:{}", tls.port), tls.port),
        ("TLS not there", format!("rediss://127.0.0.1:{at}?{query}"), at),
        ("wrong password", url.replace("://", "://few:wrong@"), at),
        ("no right", url.replace("://", "://few:pw@"), at),
        ("no such database", format!("{url}/16"), at),
        ("read-only", format!("redis://127.0.0.1:{}", replica.port()), replica.port()),
        ("too old", format!("redis://127.0.0.1:{old}"), old),
        ("wrong topology: a node of a cluster", format!("redis://127.0.0.1:{node}"), node),
        ("wrong topology: no cluster", format!("redis-cluster://127.0.0.1:{at}"), at),
        ("wrong topology: no sentinel", format!("redis-sentinel://127.0.0.1:{at}/main"), at),
        ("wrong topology: a sentinel", format!("redis://127.0.0.1:{watched}"), watched),
    ] {
        let error = Registry::new().connect("redis", &url).await.expect_err(&url);
        rows.push((fault, first_contact_text(error.message(), &[port], "")));
    }
    first_contact_table("redis", &rows);
}
