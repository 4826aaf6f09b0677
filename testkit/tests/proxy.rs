//! Every mode of the proxy, against a server that counts what it was asked.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::servers::{free_port, shared};
use dlock_testkit::{Mode, Proxy};

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(30);

#[test]
fn a_passing_proxy_forwards_and_counts() {
    let (server, proxy) = pair();
    let mut client = Client::to(&proxy);
    assert_eq!(client.ask("a"), Ok("a".into()));
    assert_eq!((proxy.connections(), server.asked()), (1, 1));
    drop(client);
    eventually(|| proxy.connections() == 0);
    assert_eq!(server.ends.recv_timeout(LONG), Ok(None), "an orderly end arrives as one");
}

#[test]
fn a_delay_holds_up_each_direction_but_not_the_rate() {
    let (delay, lines) = (SHORT * 3, 100);
    let (server, proxy) = pair();
    let mut client = Client::to(&proxy);
    proxy.set(Mode::Delay { to_server: delay, to_client: Duration::ZERO });
    let started = Instant::now();
    for line in 0..lines {
        client.send(&line.to_string());
        let asked = server.asked();
        assert!(asked == 0 || started.elapsed() >= delay, "the request was not held up");
        // So that each is sent by itself.
        thread::sleep(delay / lines);
    }
    (0..lines).for_each(|line| assert_eq!(client.receive(), Ok(line.to_string())));
    assert!(started.elapsed() >= delay, "{:?}", started.elapsed());
    // One after another they would take more than twice as long.
    assert!(started.elapsed() < delay * lines / 2, "{:?}", started.elapsed());

    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: delay });
    let started = Instant::now();
    assert_eq!(client.ask("c"), Ok("c".into()));
    assert!(started.elapsed() >= delay);
    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: LONG * 100 });
    client.send("d");
    eventually(|| server.asked() == lines as usize + 2);
}

#[test]
fn a_blackhole_swallows_and_its_connections_stay_dead() {
    let (server, proxy) = pair();
    let mut old = Client::impatient(&proxy);
    let mut untouched = Client::to(&proxy);
    assert_eq!(untouched.ask("a"), Ok("a".into()));
    proxy.set(Mode::BLACKHOLE);
    assert_eq!(old.ask("b"), Err(ErrorKind::WouldBlock));
    assert_eq!(
        Client::impatient(&proxy).ask("c"),
        Err(ErrorKind::WouldBlock),
        "a new one is accepted and gets no answer"
    );
    assert_eq!(server.asked(), 1);
    // The connections that are dead from now on.
    eventually(|| proxy.swallowing() == 2);

    proxy.set(Mode::Pass);
    assert_eq!(old.ask("d"), Err(ErrorKind::WouldBlock));
    assert_eq!(untouched.ask("e"), Ok("e".into()));
    assert_eq!(server.asked(), 2);
}

#[test]
fn a_blackhole_of_replies_lets_requests_through() {
    let (server, proxy) = pair();
    let mut client = Client::impatient(&proxy);
    proxy.set(Mode::Blackhole { to_server: false, to_client: true });
    assert_eq!(client.ask("a"), Err(ErrorKind::WouldBlock));
    eventually(|| server.asked() == 1);
}

#[test]
fn a_blackhole_hides_the_end_of_the_client() {
    let (server, proxy) = pair();
    let mut client = Client::to(&proxy);
    client.ask("a").unwrap();
    proxy.set(Mode::Blackhole { to_server: true, to_client: false });
    drop(client);
    assert!(server.ends.recv_timeout(SHORT).is_err(), "the server must not learn of it");
    assert_eq!(proxy.connections(), 1);
    proxy.cut();
    assert_eq!(server.ends.recv_timeout(LONG), Ok(Some(ErrorKind::ConnectionReset)));
}

#[test]
fn a_refusing_proxy_resets_old_and_new_connections() {
    let (server, proxy) = pair();
    let mut client = Client::to(&proxy);
    client.ask("a").unwrap();
    proxy.set(Mode::Refuse);
    assert_eq!(client.receive(), Err(ErrorKind::ConnectionReset));
    assert_eq!(first_word(&proxy), Err(ErrorKind::ConnectionReset));
    eventually(|| proxy.connections() == 0);
    assert_eq!(server.asked(), 1);
    proxy.set(Mode::Pass);
    assert_eq!(Client::to(&proxy).ask("b"), Ok("b".into()));
}

#[test]
fn dropped_replies_are_those_of_requests_that_were_done() {
    let (server, proxy) = pair();
    let mut client = Client::to(&proxy);
    proxy.set(Mode::DropReplies);
    assert_eq!(client.ask("a"), Err(ErrorKind::ConnectionReset));
    assert_eq!(server.asked(), 1, "it was done");
}

#[test]
fn kept_requests_arrive_when_they_are_delivered() {
    let (server, proxy) = pair();
    let mut client = Client::to(&proxy);
    client.ask("a").unwrap();
    proxy.keep();
    client.send("b");
    eventually(|| proxy.kept() == [2]);
    let mut later = Client::to(&proxy);
    assert_eq!(later.ask("c"), Ok("c".into()), "a connection made later is not concerned");
    assert_eq!(server.asked(), 2);

    client.send("dd");
    eventually(|| proxy.kept() == [5]);
    proxy.deliver(&[2]);
    assert_eq!(client.receive(), Ok("b".into()));
    assert_eq!((proxy.kept(), server.asked()), (vec![3], 3));

    drop(client);
    assert!(server.ends.recv_timeout(SHORT).is_err(), "the end is kept too");
    proxy.deliver(&[3]);
    eventually(|| server.asked() == 4);
}

#[test]
fn all_that_was_kept_arrives_at_last_and_the_ends_too() {
    let (server, proxy) = pair();
    let (mut first, mut second) = (Client::to(&proxy), Client::to(&proxy));
    first.ask("a").unwrap();
    second.ask("b").unwrap();
    proxy.keep();
    first.send("c");
    second.send("d");
    eventually(|| proxy.kept() == [2, 2]);
    drop(second);
    proxy.deliver_all();
    assert_eq!(first.receive(), Ok("c".into()));
    eventually(|| server.asked() == 4);
    assert!(server.ends.recv_timeout(LONG).is_ok(), "the end of the other connection arrives");
    assert_eq!(first.ask("e"), Ok("e".into()), "nothing more is kept");
}

#[test]
fn a_cut_resets_both_sides_of_a_connection_and_no_other() {
    let (server, proxy) = pair();
    let mut client = Client::to(&proxy);
    client.ask("a").unwrap();
    proxy.cut();
    assert_eq!(client.receive(), Err(ErrorKind::ConnectionReset));
    assert_eq!(server.ends.recv_timeout(LONG), Ok(Some(ErrorKind::ConnectionReset)));
    assert_eq!(Client::to(&proxy).ask("b"), Ok("b".into()));
}

#[test]
fn a_dropped_proxy_is_gone() {
    let (_server, proxy) = pair();
    let addr = proxy.addr();
    let mut client = Client::to(&proxy);
    client.ask("a").unwrap();
    drop(proxy);
    assert!(client.receive().is_err_and(|kind| kind != ErrorKind::WouldBlock));
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn a_target_that_is_down_resets_the_connection() {
    let proxy = Proxy::start((Ipv4Addr::LOCALHOST, free_port())).unwrap();
    assert_eq!(first_word(&proxy), Err(ErrorKind::ConnectionReset));
}

#[test]
fn the_urls_of_a_proxy_lead_through_it() {
    let (proxy, url) = Proxy::in_front_of("mysql://root:p@127.0.0.1:3306/test?a=b").unwrap();
    assert_eq!(url, format!("mysql://root:p@127.0.0.1:{}/test?a=b", proxy.port()));
    let (proxy, url) = Proxy::in_front_of("http://127.0.0.1:2379").unwrap();
    assert_eq!(url, format!("http://127.0.0.1:{}", proxy.port()));

    let (proxy, _) = Proxy::in_front_of(&shared().redis().unwrap()).unwrap();
    let mut client = Client::to(&proxy);
    assert_eq!(client.ask("PING"), Ok("+PONG\r".into()));
}

/// A server that sends every line back.
struct Server {
    addr: SocketAddr,
    asked: Arc<AtomicUsize>,
    /// How each connection ended: orderly, or with an error.
    ends: mpsc::Receiver<Option<ErrorKind>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let (end, ends) = mpsc::channel();
        let count = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, count, end) = (stream.unwrap(), count.clone(), end.clone());
                thread::spawn(move || {
                    let error = serve(&mut stream, &count).err();
                    let _ = end.send(error.map(|error| error.kind()));
                });
            }
        });
        Self { addr, asked, ends }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn serve(stream: &mut TcpStream, asked: &AtomicUsize) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        asked.fetch_add(1, Ordering::SeqCst);
        writeln!(writer, "{line}")?;
    }
    Ok(())
}

struct Client(BufReader<TcpStream>);

/// The reset of a connection may come before `connect` has returned.
fn first_word(proxy: &Proxy) -> Result<String, ErrorKind> {
    let stream = TcpStream::connect(proxy.addr()).map_err(|error| error.kind())?;
    stream.set_read_timeout(Some(LONG)).unwrap();
    Client(BufReader::new(stream)).receive()
}

impl Client {
    fn to(proxy: &Proxy) -> Self {
        let stream = TcpStream::connect(proxy.addr()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Self(BufReader::new(stream))
    }

    /// For an answer that must not come.
    fn impatient(proxy: &Proxy) -> Self {
        let client = Self::to(proxy);
        client.0.get_ref().set_read_timeout(Some(SHORT * 6)).unwrap();
        client
    }

    fn ask(&mut self, line: &str) -> Result<String, ErrorKind> {
        self.send(line);
        self.receive()
    }

    fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn receive(&mut self) -> Result<String, ErrorKind> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => Err(ErrorKind::UnexpectedEof),
            Ok(_) => Ok(line.trim_end_matches('\n').to_owned()),
            Err(error) => Err(error.kind()),
        }
    }
}

fn pair() -> (Server, Proxy) {
    let server = Server::start();
    let proxy = Proxy::start(server.addr).unwrap();
    (server, proxy)
}

fn eventually(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {LONG:?}");
        thread::sleep(Duration::from_millis(2));
    }
}
