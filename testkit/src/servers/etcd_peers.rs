//! A proxy between the members of an etcd cluster. It can cut one member off from the others.
//!
//! All members know each other by these doors. A member names itself at the head of each connection, so a door knows
//! the sender.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::Result;
use crate::error::Context;

/// The longest head of a request between members.
const HEAD: usize = 16 * 1024;

/// The doors of all members.
pub(super) struct Peers {
    ports: Vec<u16>,
    traffic: Arc<Mutex<Traffic>>,
}

#[derive(Default)]
struct Traffic {
    /// The member that is cut off.
    cut: Option<usize>,
    /// The members, by the names that they give themselves.
    names: HashMap<String, usize>,
    connections: Vec<Connection>,
    closed: bool,
}

struct Connection {
    /// The name of the sender, if it gave one.
    from: Option<String>,
    to: usize,
    sides: [TcpStream; 2],
}

impl Traffic {
    fn is_cut(&self, from: Option<&str>, to: usize) -> bool {
        let from = from.and_then(|from| self.names.get(from)).copied();
        self.closed || self.cut.is_some_and(|cut| from == Some(cut) || to == cut)
    }

    /// Ends what must not go on.
    fn sweep(&mut self) {
        let all = std::mem::take(&mut self.connections);
        for connection in all {
            if self.is_cut(connection.from.as_deref(), connection.to) {
                connection.sides.iter().for_each(|side| _ = side.shutdown(Shutdown::Both));
            } else {
                self.connections.push(connection);
            }
        }
    }
}

impl Peers {
    /// A door in front of each of these ports.
    pub(super) fn start(targets: &[u16]) -> Result<Self> {
        let traffic = Arc::<Mutex<Traffic>>::default();
        let mut ports = Vec::with_capacity(targets.len());
        for (to, target) in targets.iter().copied().enumerate() {
            let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a door between members")?;
            ports.push(door.local_addr().context("a door between members")?.port());
            let traffic = traffic.clone();
            thread::spawn(move || {
                for side in door.incoming().map_while(io::Result::ok) {
                    if lock(&traffic).closed {
                        return;
                    }
                    let traffic = traffic.clone();
                    thread::spawn(move || _ = forward(side, to, (Ipv4Addr::LOCALHOST, target).into(), &traffic));
                }
            });
        }
        Ok(Self { ports, traffic })
    }

    /// By which members know each other, in the order of the targets.
    pub(super) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Says who is who.
    pub(super) fn name(&self, names: HashMap<String, usize>) {
        lock(&self.traffic).names = names;
    }

    /// Cuts one member off from the others, or nobody.
    pub(super) fn cut(&self, member: Option<usize>) {
        let mut traffic = lock(&self.traffic);
        traffic.cut = member;
        traffic.sweep();
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        {
            let mut traffic = lock(&self.traffic);
            traffic.closed = true;
            traffic.sweep();
        }
        // Each door still waits for one connection.
        for port in &self.ports {
            let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, *port));
        }
    }
}

fn forward(mut side: TcpStream, to: usize, target: SocketAddr, traffic: &Mutex<Traffic>) -> io::Result<()> {
    let head = head_of(&mut side)?;
    let text = String::from_utf8_lossy(&head);
    let from = text.lines().find_map(|line| line.strip_prefix("X-Server-From: ")).map(str::to_owned);
    let mut other = TcpStream::connect(target)?;
    {
        let mut traffic = lock(traffic);
        if traffic.is_cut(from.as_deref(), to) {
            return Ok(());
        }
        let sides = [side.try_clone()?, other.try_clone()?];
        traffic.connections.push(Connection { from, to, sides });
    }
    other.write_all(&head)?;
    let (mut back_from, mut back_to) = (other.try_clone()?, side.try_clone()?);
    let back = thread::spawn(move || {
        let _ = io::copy(&mut back_from, &mut back_to);
        let _ = back_to.shutdown(Shutdown::Write);
    });
    let _ = io::copy(&mut side, &mut other);
    let _ = other.shutdown(Shutdown::Write);
    let _ = back.join();
    Ok(())
}

fn head_of(side: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = side.read(&mut part)?;
        if read == 0 || head.len() > HEAD {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..read]);
    }
    Ok(head)
}

fn lock(traffic: &Mutex<Traffic>) -> MutexGuard<'_, Traffic> {
    traffic.lock().unwrap_or_else(PoisonError::into_inner)
}
