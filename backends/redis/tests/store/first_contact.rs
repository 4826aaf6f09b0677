//! The errors of a first contact that fails. Each names the host, the port, what is wrong and what to write.
//! `docs/first-contact.md` has the table: `DLOCK_WRITE=1` writes it again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use dlock::Registry;
use dlock_testkit::servers::{Instance, Redis, RedisCluster, RedisTls, Sentinel};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/first-contact.md");

/// A server that gives the same answer to everything, or none.
fn says(answer: Option<&'static str>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            if let Some(answer) = answer {
                let _ = stream.read(&mut [0; 512]);
                let _ = stream.write_all(answer.repeat(8).as_bytes());
            }
            open.push(stream);
        }
    });
    address
}

/// The text of the error, with this port as `PORT`.
async fn refusal(url: &str, port: u16) -> String {
    let error = Registry::new().connect("redis", url).await.expect_err(url);
    let text = error.message().to_owned();
    assert!(
        text.contains(&port.to_string()) && text.contains("127.0.0.1") || text.contains("nowhere.invalid"),
        "{text}"
    );
    assert!(!text.contains("does not know"), "{text}");
    text.replace(&port.to_string(), "PORT")
}

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
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (silent, other) = (says(None).port(), says(Some("HTTP/1.1 400 Bad Request\r\n\r\n")).port());
    let query = tls.url_at(at).split_once('?').unwrap().1.to_owned();
    let old = says(Some("-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n")).port();
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
        rows.push(format!("| {fault} | {} |\n", refusal(&url, port).await));
    }
    let page = std::fs::read_to_string(Path::new(PAGE)).unwrap();
    let (before, rest) = page.split_once("<!-- redis -->\n").expect("the table begins");
    let (table, after) = rest.split_once("<!-- end -->").expect("it ends");
    let written = format!("| fault | text |\n| --- | --- |\n{}", rows.concat());
    if std::env::var_os("DLOCK_WRITE").is_some() {
        std::fs::write(PAGE, format!("{before}<!-- redis -->\n{written}<!-- end -->{after}")).unwrap();
    } else {
        assert_eq!(table, written, "run this test with DLOCK_WRITE=1 and look at the difference");
    }
}
