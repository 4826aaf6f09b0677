//! The errors of a first contact that fails. Each names the host, the port, what is wrong and what to write.
//! `docs/first-contact.md` has the table: `DLOCK_WRITE=1` writes it again.

use dlock::Registry;
use dlock_testkit::servers::{self, Certificates, Instance, free_port};
use dlock_testkit::{first_contact_table, first_contact_text, port_of_nobody, server_that_says};

use crate::rights::{strict, token};
use crate::tls::with_tls;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_first_contact_has_its_text() {
    let (certificates, secure) = (Certificates::make().unwrap(), free_port());
    let extra = with_tls(&certificates, secure);
    let server = Instance::start(servers::Consul { extra, ..servers::Consul::default() }).unwrap();
    let (guarded, raw) = strict(Vec::new());
    let few = token(raw, r#"session_prefix "dlock-" { policy = "write" }"#);
    let [at, strict] = [&server, &guarded].map(Instance::port);
    let nobody = port_of_nobody();
    let (silent, other) = (server_that_says(None), server_that_says(Some("-ERR unknown command\r\n")));
    let file = |name| certificates.file(name);
    let query = format!("tls=verify&ca={}&cert={}&key={}", file("ca.pem"), file("client.pem"), file("client.key"));
    let mut rows = Vec::new();
    for (fault, url, port) in [
        ("refused", format!("consul://127.0.0.1:{nobody}"), nobody),
        ("unknown name", "consul://nowhere.invalid?tls=off".to_owned(), 8500),
        ("silent", format!("consul://127.0.0.1:{silent}"), silent),
        ("wrong protocol", format!("consul://127.0.0.1:{other}"), other),
        (
            "another HTTP server",
            format!(
                "consul://127.0.0.1:{}",
                server_that_says(Some("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"))
            ),
            0,
        ),
        ("TLS wanted", format!("consul://127.0.0.1:{secure}"), secure),
        ("TLS not there", format!("consul://127.0.0.1:{at}?{query}"), at),
        (
            "TLS: an authority that did not sign",
            format!("consul://127.0.0.1:{secure}?{query}").replace("ca.pem", "stranger.pem"),
            secure,
        ),
        ("wrong token", format!("consul://:6f1f3c0e-0000-4a39-9b5d-5f0a4c8f2b11@127.0.0.1:{strict}"), strict),
        ("no right", format!("consul://:{few}@127.0.0.1:{strict}"), strict),
        ("no token", format!("consul://127.0.0.1:{strict}"), strict),
        ("no such datacenter", format!("consul://127.0.0.1:{at}?dc=nowhere"), at),
    ] {
        let port = if port == 0 { url.rsplit_once(':').unwrap().1.parse().unwrap() } else { port };
        let error = Registry::new().connect("consul", &url).await.expect_err(&url);
        rows.push((fault, first_contact_text(error.message(), &[port], "")));
    }
    first_contact_table("consul", &rows);
}
