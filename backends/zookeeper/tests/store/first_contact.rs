//! The errors of a first contact that fails. Each names the host, the port, what is wrong and what to write.
//! `docs/first-contact.md` has the table: `DLOCK_WRITE=1` writes it again.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use dlock::Registry;
use dlock_testkit::servers::{Certificates, Instance, ZooKeeper, free_port};
use dlock_testkit::{first_contact_table, first_contact_text, port_of_nobody, server_that_says};
use futures::future::join_all;

use crate::tls::with_tls;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_first_contact_has_its_text() {
    let (certificates, secure) = (Certificates::make().unwrap(), free_port());
    let tls = Instance::start(with_tls(&certificates, secure)).unwrap();
    let strict = Instance::start(ZooKeeper { account: Some(("me", "pw")), ..ZooKeeper::default() }).unwrap();
    let ensemble = Instance::start(ZooKeeper::default()).unwrap();
    // One of three servers, which answers reads without the others.
    let mut alone = ZooKeeper::ensemble(3).swap_remove(0);
    alone.java.push("-Dreadonlymode.enabled=true".to_owned());
    alone.settings.push("localSessionsEnabled=true".to_owned());
    let alone = Instance::start(alone).unwrap();
    let [at, strict, second, alone] = [&tls, &strict, &ensemble, &alone].map(Instance::port);
    let nobody = port_of_nobody();
    let (silent, other) = (server_that_says(None), server_that_says(Some("HTTP/1.1 400 Bad Request\r\n\r\n")));
    let (file, old) = (|name| certificates.file(name), server_that_knows_no_request());
    let query = format!("tls=verify&ca={}&cert={}&key={}", file("ca.pem"), file("client.pem"), file("client.key"));
    let connect = async |url: String| Registry::new().connect("zookeeper", &url).await;
    // The nodes of this chroot are one account's.
    connect(format!("zk://me:pw@127.0.0.1:{at}/mine")).await.unwrap();
    let faults = [
        ("refused", format!("zk://127.0.0.1:{nobody}"), vec![nobody]),
        ("unknown name", "zk://nowhere.invalid?tls=off".to_owned(), vec![2181]),
        ("silent", format!("zk://127.0.0.1:{silent}"), vec![silent]),
        ("wrong protocol", format!("zk://127.0.0.1:{other}"), vec![other]),
        ("TLS wanted", format!("zk://127.0.0.1:{secure}"), vec![secure]),
        ("TLS not there", format!("zk://127.0.0.1:{at}?{query}"), vec![at]),
        (
            "TLS: an authority that did not sign",
            format!("zk://127.0.0.1:{secure}?{query}").replace("ca.pem", "stranger.pem"),
            vec![secure],
        ),
        ("wrong password", format!("zk://me:wrong@127.0.0.1:{strict}?auth=sasl"), vec![strict]),
        ("no password", format!("zk://127.0.0.1:{strict}"), vec![strict]),
        ("no right", format!("zk://you:pw@127.0.0.1:{at}/mine"), vec![at]),
        ("too old", format!("zk://127.0.0.1:{old}"), vec![old]),
        ("read-only: no majority", format!("zk://127.0.0.1:{alone}"), vec![alone]),
        ("wrong topology: two ensembles", format!("zk://127.0.0.1:{at},127.0.0.1:{second}"), vec![at, second]),
    ];
    // Beside each other, since each takes seconds.
    let rows = faults.map(async |(fault, url, ports)| {
        let mut error = connect(url.clone()).await.expect_err(&url);
        // Where many programs wait for a core, a handshake takes longer than the 4 s of an opening.
        for _ in 0..5 {
            if fault.starts_with("TLS: ") && !error.message().starts_with("TLS with ZooKeeper failed") {
                error = connect(url.clone()).await.expect_err(&url);
            }
        }
        // The client library gives one of several reasons, depending on how far it comes.
        (fault, first_contact_text(error.message(), &ports, "opened a session: "))
    });
    first_contact_table("zookeeper", &join_all(rows).await);
}

/// The port of a server that opens sessions, and answers each request as one of a release before the request: no old server is
/// installed.
fn server_that_knows_no_request() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer_all(stream));
        }
    });
    port
}

/// Ends with the connection.
fn answer_all(mut stream: TcpStream) -> std::io::Result<()> {
    const UNIMPLEMENTED: i32 = -6;
    const PING: [u8; 4] = (-2_i32).to_be_bytes();
    let connect = frame(&mut stream)?;
    // The version, the timeout that the client asks for, a session with a password, and no word on reading alone.
    let session = [&[0; 4], &connect[12..16], &7_u64.to_be_bytes(), &16_u32.to_be_bytes(), &[1; 16], &[0]].concat();
    send(&mut stream, &session)?;
    loop {
        let request = frame(&mut stream)?;
        let error = if request[..4] == PING { 0 } else { UNIMPLEMENTED };
        send(&mut stream, &[&request[..4], &[0; 8], &error.to_be_bytes()].concat())?;
    }
}

fn frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

fn send(stream: &mut TcpStream, frame: &[u8]) -> std::io::Result<()> {
    stream.write_all(&u32::try_from(frame.len()).unwrap().to_be_bytes())?;
    stream.write_all(frame)
}
