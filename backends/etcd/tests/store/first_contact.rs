//! The errors of a first contact that fails. Each names the host, the port, what is wrong and what to write.
//! `docs/first-contact.md` has the table: `DLOCK_WRITE=1` writes it again.

use dlock::Registry;
use dlock::backends::etcd::client::Client;
use dlock_testkit::servers::{Etcd, EtcdTls, Instance};
use dlock_testkit::{Mode, Proxy, first_contact_table, first_contact_text, port_of_nobody, server_that_says};

/// A server with an account `few`, which may do nothing.
async fn with_accounts() -> Instance {
    let server = crate::server::own();
    let mut raw = Client::connect([server.url()], None).await.unwrap();
    raw.role_add("root").await.unwrap();
    raw.user_add("root", "pw", None).await.unwrap();
    raw.user_grant_role("root", "root").await.unwrap();
    raw.user_add("few", "pw", None).await.unwrap();
    raw.auth_enable().await.unwrap();
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_first_contact_has_its_text() {
    let start = |extra: &[&str]| {
        let extra = extra.iter().map(|&option| option.to_owned()).collect();
        Instance::start(Etcd { extra, ..Etcd::default() }).unwrap()
    };
    let (server, full, few, tls) = (start(&[]), start(&[]), start(&["--max-txn-ops=4"]), EtcdTls::start().unwrap());
    full.ask(r#"/v3/maintenance/alarm {"action":"ACTIVATE","alarm":"NOSPACE"}"#).unwrap();
    let strict = with_accounts().await;
    let [at, full, few, strict] = [&server, &full, &few, &strict].map(Instance::port);
    let nobody = port_of_nobody();
    // No old server is installed. So a proxy writes another version into the answers of this one.
    let raw = Client::connect([server.url()], None).await.unwrap();
    let version = raw.maintenance_client().status().await.unwrap().version().to_owned();
    let older = format!("3.3{}", &version[3..]);
    let old = Proxy::start(server.addr()).unwrap();
    old.set(Mode::Rewrite { from: version.leak(), to: older.leak() });
    let (silent, other) = (server_that_says(None), server_that_says(Some("HTTP/1.1 400 Bad Request\r\n\r\n")));
    let query = tls.url().split_once('?').unwrap().1.to_owned();
    let mut rows = Vec::new();
    for (fault, url, ports) in [
        ("refused", format!("etcd://127.0.0.1:{nobody}"), vec![nobody]),
        ("unknown name", "etcd://nowhere.invalid?tls=off".to_owned(), vec![2379]),
        ("silent", format!("etcd://127.0.0.1:{silent}"), vec![silent]),
        ("wrong protocol", format!("etcd://127.0.0.1:{other}"), vec![other]),
        ("TLS wanted", format!("etcd://127.0.0.1:{}", tls.port), vec![tls.port]),
        ("TLS not there", format!("etcd://127.0.0.1:{at}?{query}"), vec![at]),
        ("TLS: an authority that did not sign", tls.url().replace("ca.pem", "stranger.pem"), vec![tls.port]),
        ("wrong password", format!("etcd://few:wrong@127.0.0.1:{strict}"), vec![strict]),
        ("no right", format!("etcd://few:pw@127.0.0.1:{strict}"), vec![strict]),
        ("no password", format!("etcd://127.0.0.1:{strict}"), vec![strict]),
        ("a password that is not wanted", format!("etcd://few:pw@127.0.0.1:{at}"), vec![at]),
        ("read-only: no space", format!("etcd://127.0.0.1:{full}"), vec![full]),
        ("too old", format!("etcd://{}", old.addr()), vec![old.port()]),
        ("a limit that is too small", format!("etcd://127.0.0.1:{few}"), vec![few]),
        ("wrong topology: two clusters", format!("etcd://127.0.0.1:{at},127.0.0.1:{few}"), vec![at, few]),
    ] {
        let error = Registry::new().connect("etcd", &url).await.expect_err(&url);
        // The client library gives one of several reasons, depending on how far it comes.
        let vague =
            if fault.starts_with("wrong protocol") || fault.starts_with("TLS ") { "usable answer: " } else { "" };
        rows.push((fault, first_contact_text(error.message(), &ports, vague)));
    }
    first_contact_table("etcd", &rows);
}
