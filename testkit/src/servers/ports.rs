//! Free ports.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::Mutex;

/// Below the range from which the kernel takes ports for outgoing connections: while a server is down between a kill
/// and its restart, no connection can take its port away.
const RANGE: Range<u16> = 20_000..32_000;

/// A port of 127.0.0.1 that nobody listens on and that this process was not given before.
///
/// The start is random, so that test processes side by side rarely look at the same ones.
pub fn claim() -> u16 {
    static CLAIMED: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut claimed = CLAIMED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let claimed = claimed.get_or_insert_default();
    let length = u64::from(RANGE.end - RANGE.start);
    let start = RandomState::new().hash_one(std::process::id()) % length;
    (0..length)
        .map(|step| RANGE.start + ((start + step) % length) as u16)
        .find(|port| !claimed.contains(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .inspect(|port| {
            claimed.insert(*port);
        })
        .expect("one of 12000 ports is free")
}
