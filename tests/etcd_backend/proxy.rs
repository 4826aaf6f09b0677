//! A relay that can keep what clients send, and deliver it later: the slow network in which an answer is unknown.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) struct Proxy {
    address: String,
    lines: Arc<Mutex<Vec<Arc<Mutex<Line>>>>>,
}

/// One connection's way to the server.
struct Line {
    server: TcpStream,
    kept: Option<Vec<u8>>,
}

impl Proxy {
    pub(crate) fn before(host: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let lines: Arc<Mutex<Vec<_>>> = Arc::default();
        let (host, known) = (host.to_owned(), lines.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&host) else { continue };
                let line = Arc::new(Mutex::new(Line { server: server.try_clone().unwrap(), kept: None }));
                known.lock().unwrap().push(line.clone());
                let (from_client, from_server) = (client.try_clone().unwrap(), server);
                std::thread::spawn(move || relay_up(from_client, &line));
                std::thread::spawn(move || relay_down(from_server, client));
            }
        });
        Self { address, lines }
    }

    pub(crate) fn host(&self) -> &str {
        &self.address
    }

    pub(crate) fn connections(&self) -> usize {
        self.lines.lock().unwrap().len()
    }

    /// From now on keeps what comes over the connections that exist; new ones are not concerned.
    pub(crate) fn keep(&self) {
        self.each(|line| line.kept = Some(Vec::new()));
    }

    /// How much is kept.
    pub(crate) fn kept(&self) -> Vec<usize> {
        let mut kept = Vec::new();
        self.each(|line| kept.push(line.kept.as_ref().map_or(0, Vec::len)));
        kept
    }

    /// Delivers so much of it, and still nothing more.
    pub(crate) fn deliver(&self, amounts: &[usize]) {
        let mut amounts = amounts.iter();
        self.each(|line| {
            let amount = amounts.next().copied().unwrap_or(0);
            let parcel: Vec<_> = line.kept.iter_mut().flat_map(|kept| kept.drain(..amount)).collect();
            line.server.write_all(&parcel).unwrap();
        });
    }

    fn each(&self, mut act: impl FnMut(&mut MutexGuard<'_, Line>)) {
        self.lines.lock().unwrap().iter().for_each(|line| act(&mut line.lock().unwrap()));
    }
}

fn relay_up(mut client: TcpStream, line: &Mutex<Line>) {
    let mut buffer = [0; 16384];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        let Line { server, kept } = &mut *line.lock().unwrap();
        match kept {
            Some(kept) => kept.extend_from_slice(&buffer[..length]),
            None if server.write_all(&buffer[..length]).is_err() => break,
            None => {}
        }
    }
    let line = line.lock().unwrap();
    // The end of a connection is kept too.
    if line.kept.is_none() {
        let _ = line.server.shutdown(Shutdown::Both);
    }
}

fn relay_down(mut server: TcpStream, mut client: TcpStream) {
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(Shutdown::Both);
}
