//! Servers that answer without end: before anybody has logged in, later, and in the place of sentinels.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use dlock::backends::redis::Redis;
use dlock::{Clock, ErrorKind};
use dlock_contract::{Backend, Queue};
use dlock_testkit::holds::{claim, take};
use dlock_testkit::{lateness, wait_until};

use super::database::{Database, HOUR, SECOND};

/// The bytes that fit into the buffers of two sockets, beside 16 MB that are read.
const BOUND: u64 = 64 * 1024 * 1024;

/// Answers of more than a store of locks ever gives: a text and a list by what they announce, a line without an end, and a
/// list in a list in a list.
const ANSWERS: [&[u8]; 4] = [b"$1000000000\r\n", b"*1000000000\r\n", b"+", b"*1\r\n*1\r\n*1\r\n*1\r\n"];

/// A hostile server, or a hostile machine between us and a server.
struct Hostile {
    address: SocketAddr,
    /// Whether it is hostile just now.
    is_hostile: Arc<AtomicBool>,
    /// How many bytes it could send.
    sent: Arc<AtomicU64>,
}

impl Hostile {
    /// Begins its answers so; passes everything on to the server behind it while it is not hostile.
    fn start(answer: &'static [u8], behind: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hostile = Self {
            address: listener.local_addr().unwrap(),
            is_hostile: Arc::new(AtomicBool::new(behind.is_none())),
            sent: Arc::default(),
        };
        let (is_hostile, sent) = (hostile.is_hostile.clone(), hostile.sent.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (is_hostile, sent) = (is_hostile.clone(), sent.clone());
                thread::spawn(move || serve(client, answer, behind, &is_hostile, &sent));
            }
        });
        hostile
    }
}

fn serve(mut client: TcpStream, answer: &[u8], behind: Option<SocketAddr>, is_hostile: &AtomicBool, sent: &AtomicU64) {
    let mut buffer = [0; 64 * 1024];
    let Some(behind) = behind else {
        let _ = client.read(&mut buffer);
        return flood(client, answer, sent);
    };
    let mut server = TcpStream::connect(behind).unwrap();
    let (mut requests, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut requests, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    while let Ok(count @ 1..) = server.read(&mut buffer) {
        if is_hostile.load(Ordering::SeqCst) {
            return flood(client, answer, sent);
        }
        if client.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

fn flood(mut client: TcpStream, answer: &[u8], sent: &AtomicU64) {
    let more = answer.repeat(64 * 1024 / answer.len());
    let more = if answer.starts_with(b"$") || answer == b"+" { vec![b'x'; 64 * 1024] } else { more };
    let _ = client.write_all(answer);
    while client.write_all(&more).is_ok() {
        sent.fetch_add(more.len() as u64, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_without_end_ends_the_connection_before_anybody_has_logged_in() {
    let mut ended_by_size = 0;
    for answer in ANSWERS {
        for sentinels in [false, true] {
            let hostile = Hostile::start(answer, None);
            let at = hostile.address;
            let url = if sentinels { format!("redis-sentinel://{at},{at},{at}/main") } else { format!("redis://{at}") };
            let error = Redis::connect(&url, &Clock::system()).await.unwrap_err();
            let text = String::from_utf8_lossy(answer);
            // On a slow machine the limit of an opening, 5 s, may come before the 16 MB.
            assert!(matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Outage), "{text:?} {sentinels}: {error}");
            ended_by_size += u32::from(*error.kind() == ErrorKind::Protocol);
            let sent = hostile.sent.load(Ordering::SeqCst);
            assert!(sent < if sentinels { 3 * BOUND } else { BOUND }, "{text:?}: {sent} bytes");
        }
    }
    assert!(ended_by_size > 0, "too slow each time: nothing is proven");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_without_end_ends_the_connection_later_too() {
    for answer in ANSWERS {
        let server = Database::own(&[]);
        let hostile = Hostile::start(answer, Some(server.server.addr()));
        let redis = Redis::connect(&format!("redis://{}", hostile.address), &Clock::system()).await.unwrap();
        let hold = take(&redis, &claim("k", HOUR)).await;
        hostile.is_hostile.store(true, Ordering::SeqCst);
        lateness::watch();
        let started = Instant::now();
        let error = redis.try_acquire(&claim("other", HOUR), Queue::Leave).await.unwrap_err();
        assert!(*error.kind() == ErrorKind::Protocol, "{:?}: {error}", String::from_utf8_lossy(answer));
        let error = redis.renew(&[&hold]).await.remove(0).unwrap_err();
        assert!(*error.kind() == ErrorKind::Protocol, "{error}");
        lateness::assert_within(20 * SECOND, started, "the end of the connection");
        assert!(hostile.sent.load(Ordering::SeqCst) < 4 * BOUND);
        hostile.is_hostile.store(false, Ordering::SeqCst);
        let frees = async || redis.release(&hold).await.is_ok();
        wait_until("it is used again", frees).await.unwrap();
    }
}
