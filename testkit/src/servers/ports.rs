//! Free ports.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::Mutex;

/// Below the range from which the kernel takes ports for outgoing connections: while a server is down between a kill
/// and its restart, no connection can take its port away.
const RANGE: Range<u16> = 20_000..32_000;

/// The number of ports that are claimed at once.
const BLOCK: u16 = 50;

/// A port of 127.0.0.1 that nobody listens on, and that no other process that uses this function is given meanwhile.
pub fn claim() -> u16 {
    static BLOCKS: Mutex<Vec<Block>> = Mutex::new(Vec::new());
    let mut blocks = BLOCKS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    loop {
        if let Some(port) = blocks.last_mut().and_then(|block| block.left.find(|port| is_free(*port))) {
            return port;
        }
        blocks.push(Block::reserve());
    }
}

/// Neighbouring ports that belong to this process until it ends.
struct Block {
    left: Range<u16>,
    /// On the first of the ports, which is given to nobody: the kernel gives it to one process at a time.
    _reserved: UdpSocket,
}

impl Block {
    fn reserve() -> Self {
        let count = (RANGE.end - RANGE.start) / BLOCK;
        // A random start, so that a port is not used again at once.
        let start = RandomState::new().hash_one(()) % u64::from(count);
        (0..count)
            .map(|step| RANGE.start + (start as u16 + step) % count * BLOCK)
            .find_map(|first| {
                let reserved = UdpSocket::bind((Ipv4Addr::LOCALHOST, first)).ok()?;
                // Consul listens by UDP too, so it could not start on the first.
                Some(Self { left: first + 1..first + BLOCK, _reserved: reserved })
            })
            .expect("one of 240 blocks of ports is free")
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: HashSet<u16> = (0..usize::from(BLOCK) * 2).map(|_| claim()).collect();
        assert_eq!(ports.len(), usize::from(BLOCK) * 2);
    }

    #[test]
    fn a_server_can_listen_by_udp_on_each_port() {
        let block = Block::reserve();
        for port in block.left {
            UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }

    #[test]
    fn a_block_of_ports_that_another_process_has_is_not_reserved() {
        let blocks: Vec<Block> = (0..20).map(|_| Block::reserve()).collect();
        let firsts: HashSet<u16> = blocks.iter().map(|block| block.left.start).collect();
        assert_eq!(firsts.len(), blocks.len());
    }
}
