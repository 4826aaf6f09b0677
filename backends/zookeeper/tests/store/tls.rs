//! TLS with an authority and a client's certificate.

use std::fs;

use dlock_contract::{Backend, ErrorKind, Health};
use dlock_testkit::holds::take;
use dlock_testkit::servers::{self, Certificates, Instance, free_port};
use dlock_testkit::text_of;
use futures::future::join_all;

use crate::kit::{claim, lock, open, opened};

/// A server that speaks TLS on this port, and wants a certificate from its clients.
pub(crate) fn with_tls(certificates: &Certificates, port: u16) -> servers::ZooKeeper {
    let file = |name| certificates.file(name);
    let both = ["server.key", "server.pem"].map(|name| fs::read_to_string(file(name)).unwrap()).concat();
    let store = file("server-store.pem");
    fs::write(&store, both).unwrap();
    let settings = [
        format!("secureClientPort={port}"),
        "secureClientPortAddress=127.0.0.1".into(),
        "ssl.keyStore.type=PEM".into(),
        format!("ssl.keyStore.location={store}"),
        "ssl.trustStore.type=PEM".into(),
        format!("ssl.trustStore.location={}", file("ca.pem")),
        "ssl.clientAuth=need".into(),
    ];
    let java = vec!["-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".into()];
    servers::ZooKeeper { settings: settings.into(), java, ..servers::ZooKeeper::default() }
}

#[tokio::test]
async fn a_server_with_tls_is_known_by_its_authority_and_knows_its_client() {
    let (certificates, port) = (Certificates::make().unwrap(), free_port());
    let file = |name| certificates.file(name);
    let _server = Instance::start(with_tls(&certificates, port)).unwrap();
    let (ca, client) = (file("ca.pem"), format!("cert={}&key={}", file("client.pem"), file("client.key")));
    for host in ["127.0.0.1", "localhost"] {
        let store = opened(&format!("zk://{host}:{port}?tls=verify&ca={ca}&{client}&tick=200ms")).await;
        let hold = take(&store, &claim(&lock("tls"))).await;
        assert!(store.renew(&[&hold]).await.remove(0).is_ok());
        // The version and the tick would have to be asked for in clear text.
        assert_eq!(store.ready().await.unwrap(), Health::new());
        store.release(&hold).await.unwrap();
    }
    // Side by side, since a server says nothing to clear text, and is tried for seconds.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap();
    let here = format!("127.0.0.1:{port}");
    let stranger = (
        format!("tls=verify&ca={}&{client}", file("stranger.pem")),
        "TLS with ZooKeeper failed: invalid peer certificate",
    );
    let all = [
        (here.clone(), stranger.clone()),
        (format!("{silent},{here}"), stranger.clone()),
        (format!("{here},{silent}"), stranger),
        (here.clone(), (format!("tls=verify&ca={ca}"), "TLS with ZooKeeper failed: received fatal alert")),
        (here.clone(), ("tls=verify".to_owned(), "add ca=")),
        (here, ("tls=off".to_owned(), "no ZooKeeper server opened a session")),
    ];
    join_all(all.map(async |(hosts, (wrong, said))| {
        let error = open(&format!("zk://me:canary@{hosts}?{wrong}")).await.expect_err(said);
        assert!(error.message().contains(said) && !text_of(&error).contains("canary"), "{wrong}: {error}");
        assert!(*error.kind() == ErrorKind::Outage || said == "add ca=", "{wrong}: {error}");
    }))
    .await;
    let error = open(&format!("zk://a..b:{port}?tls=verify&ca={ca}")).await.unwrap_err();
    assert!(matches!(error.kind(), dlock::ErrorKind::ConfigInvalid { .. }), "{error}");
}
