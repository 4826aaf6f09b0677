//! TLS with an authority and a client's certificate.

use dlock::ErrorKind;
use dlock_contract::Backend;
use dlock_testkit::holds::{claim, take};
use dlock_testkit::servers::{self, Certificates, Instance, free_port};
use dlock_testkit::text_of;

use crate::server::{LONG, fresh, open};

#[tokio::test]
async fn a_server_with_tls_is_known_by_its_authority_and_knows_its_client() {
    let (certificates, port) = (Certificates::make().unwrap(), free_port());
    let file = |name| certificates.file(name);
    let mut extra = vec![format!("-hcl=ports{{https={port}}}")];
    for (option, name) in [("cert_file", "server.pem"), ("key_file", "server.key"), ("ca_file", "ca.pem")] {
        extra.push(format!("-hcl={option}=\"{}\"", file(name)));
    }
    extra.push("-hcl=verify_incoming_https=true".into());
    let _server = Instance::start(servers::Consul { extra, ..servers::Consul::default() }).unwrap();
    let (ca, client) = (file("ca.pem"), format!("cert={}&key={}", file("client.pem"), file("client.key")));
    for host in ["127.0.0.1", "localhost"] {
        let store = open(&format!("consul://{host}:{port}?tls=verify&ca={ca}&{client}")).await.unwrap();
        let hold = take(&store, &claim(&fresh("tls"), LONG)).await;
        store.release(&hold).await.unwrap();
    }
    for (wrong, why) in [
        (format!("tls=verify&ca={}&{client}", file("stranger.pem")), "a stranger's authority"),
        (format!("tls=verify&ca={ca}"), "no client's certificate"),
        ("tls=verify".to_owned(), "the system's authorities"),
        ("tls=off".to_owned(), "clear text"),
    ] {
        let error = open(&format!("consul://:canary@127.0.0.1:{port}?{wrong}")).await.unwrap_err();
        assert!(!text_of(&error).contains("canary"), "{why}: {error}");
        assert!(*error.kind() != ErrorKind::PermissionDenied, "{why}: {error}");
    }
}

#[tokio::test]
async fn a_host_that_is_not_this_one_needs_a_word_about_tls() {
    let error = open("consul://consul.invalid:8500").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "tls"), "{error}");
    let error = open("consul://127.0.0.1:1?tls=off&ca=/nowhere").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
}
