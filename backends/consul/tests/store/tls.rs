//! TLS with an authority and a client's certificate.

use std::time::Duration;

use dlock::{ErrorKind, Key, Registry};
use dlock_contract::Backend;
use dlock_testkit::child::{Child, role};
use dlock_testkit::holds::{claim, take};
use dlock_testkit::servers::{self, Certificates, Instance, free_port};
use dlock_testkit::text_of;

use crate::rights::{ENOUGH, strict, token};
use crate::server::{LONG, fresh, open};

/// The options of a server that speaks TLS on this port, and wants a certificate from its clients.
pub(crate) fn with_tls(certificates: &Certificates, port: u16) -> Vec<String> {
    let mut extra = vec![format!("-hcl=ports{{https={port}}}"), "-hcl=verify_incoming_https=true".into()];
    for (option, name) in [("cert_file", "server.pem"), ("key_file", "server.key"), ("ca_file", "ca.pem")] {
        extra.push(format!("-hcl={option}=\"{}\"", certificates.file(name)));
    }
    extra
}

#[tokio::test]
async fn a_server_with_tls_is_known_by_its_authority_and_knows_its_client() {
    let (certificates, port) = (Certificates::make().unwrap(), free_port());
    let file = |name| certificates.file(name);
    let extra = with_tls(&certificates, port);
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

/// A program that takes one lock, at the agent that its environment names.
pub(crate) fn child() {
    if role().is_none() {
        return;
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let registry = Registry::new();
        let taken = async {
            registry.connect("consul", "consul://").await?;
            registry.lock(Key::text("environment")).backend("consul").acquire().await?.release().await
        };
        match taken.await {
            Ok(_) => println!("told: it had the lock"),
            Err(error) => println!("told: {:?}: {}", error.kind(), text_of(&error).replace('\n', " ")),
        }
    });
}

#[test]
fn a_program_takes_a_lock_at_the_agent_that_the_variables_of_consuls_tools_name() {
    let (certificates, port) = (Certificates::make().unwrap(), free_port());
    let mut extra = with_tls(&certificates, port);
    // The certificate is not for this address, but for `localhost`.
    extra.push("-hcl=addresses{https=\"127.0.0.2\"}".into());
    let (_server, raw) = strict(extra);
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), token(raw, ENOUGH)).unwrap();
    let address = format!("https://127.0.0.2:{port}");
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| certificates.file(name));
    let variables = [
        ("CONSUL_HTTP_ADDR", address.as_str()),
        ("CONSUL_CACERT", &ca),
        ("CONSUL_CLIENT_CERT", &cert),
        ("CONSUL_CLIENT_KEY", &key),
        ("CONSUL_TLS_SERVER_NAME", "localhost"),
        ("CONSUL_HTTP_TOKEN_FILE", secret.path().to_str().unwrap()),
    ];
    for (without, wanted) in [
        ("", "it had the lock"),
        ("CONSUL_TLS_SERVER_NAME", "certificate not valid for name"),
        ("CONSUL_HTTP_TOKEN_FILE", "PermissionDenied"),
    ] {
        let given: Vec<_> = variables.into_iter().filter(|(name, _)| *name != without).collect();
        let mut child = Child::spawn("environment", &given).unwrap();
        let told = child.wait_line("told: ", Duration::from_secs(60)).unwrap();
        assert!(told.contains(wanted), "without {without:?}: {told}");
    }
}
