//! Answers with one wrong byte: a revision that the store has not reached, a lease that is longer than the server's.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock::backends::etcd::Etcd;
use dlock::{Clock, ErrorKind};
use dlock_contract::{Backend, Queue};
use dlock_testkit::holds::token;

use crate::server::{ask, claim_for, lock, long_claim, own, soon};

/// Forwards everything, and makes one number of an answer higher.
struct Spoiler {
    address: SocketAddr,
    spoils: Arc<Mutex<Spoilt>>,
}

/// The bytes of an answer, and which of them is spoilt. They are spoilt once.
type Spoilt = Option<(Vec<u8>, usize)>;

impl Spoiler {
    fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let spoiler = Self { address: listener.local_addr().unwrap(), spoils: Arc::default() };
        let spoils = spoiler.spoils.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
                let (to_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let spoils = spoils.clone();
                std::thread::spawn(move || forward(client, to_server, |_| ()));
                std::thread::spawn(move || forward(server, to_client, |bytes| spoil(bytes, &spoils)));
            }
        });
        spoiler
    }

    async fn open(&self) -> Etcd {
        Etcd::open(&format!("etcd://{}", self.address), &Clock::system()).await.unwrap()
    }

    /// Spoils the next answer of this revision. Its header has the revision as field 3, and the leader's term as field 4.
    fn spoil_revision(&self, revision: i64) {
        let mut left = revision;
        let mut field = vec![3 << 3];
        while left > 0x7f {
            field.push((left & 0x7f) as u8 | 0x80);
            left >>= 7;
        }
        field.extend([left as u8, 4 << 3]);
        let at = field.len() - 2;
        *self.spoils.lock().unwrap() = Some((field, at));
    }

    /// Spoils the next lease with this ttl, which is field 3 of the answer.
    fn spoil_ttl(&self, seconds: u8) {
        *self.spoils.lock().unwrap() = Some((vec![3 << 3, seconds], 1));
    }

    fn assert_spoilt(&self) {
        assert!(self.spoils.lock().unwrap().is_none(), "nothing was spoilt");
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, change: impl Fn(&mut [u8])) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        change(&mut buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn spoil(bytes: &mut [u8], spoils: &Mutex<Spoilt>) {
    let mut spoils = spoils.lock().unwrap();
    let Some((wanted, spoilt)) = spoils.as_ref() else { return };
    if let Some(at) = bytes.windows(wanted.len()).position(|part| part == wanted) {
        bytes[at + spoilt] |= 0x40;
        *spoils = None;
    }
}

#[tokio::test]
async fn one_spoilt_revision_is_neither_a_token_nor_the_end_of_all_grants() {
    let server = own();
    let spoiler = Spoiler::before(server.addr());
    let (process, mut raw) = (spoiler.open().await, crate::faults::raw(&server).await);
    let warm = ask(&process, &long_claim(&lock("warm"))).await.unwrap();
    for queue in [Queue::Leave, Queue::until(soon())] {
        let spoilt = long_claim(&lock("spoilt"));
        spoiler.spoil_revision(raw.get("none", None).await.unwrap().header().unwrap().revision() + 1);
        let answer = process.try_acquire(&spoilt, queue).await;
        spoiler.assert_spoilt();
        let error = answer.expect_err("a token that the store did not give");
        assert!(*error.kind() == ErrorKind::Outage && error.may_have_left(), "{error}");
        process.abandon(&spoilt).await.unwrap();
    }
    let next = ask(&process, &long_claim(&lock("next"))).await.unwrap();
    assert!(token(&next) > token(&warm));
}

#[tokio::test]
async fn a_lease_that_reads_as_longer_than_it_was_asked_for_is_believed_no_longer() {
    let server = own();
    let spoiler = Spoiler::before(server.addr());
    let process = spoiler.open().await;
    for renewed in [true, false] {
        spoiler.spoil_ttl(47);
        let ttl = Duration::from_secs(47);
        let hold = ask(&process, &claim_for(&lock("longer"), ttl, renewed)).await.unwrap();
        spoiler.assert_spoilt();
        assert_eq!(hold.validity.granted, ttl, "the server frees the lock earlier");
    }
}
