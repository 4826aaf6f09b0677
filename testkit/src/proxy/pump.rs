//! One direction of one connection.

use std::collections::VecDeque;
use std::future;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until};

use super::mode::Mode;
use super::state::{Line, State};

/// Forwards one direction up to its orderly end.
pub(super) async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    direction: Direction<'_>,
    state: &State,
) -> Result<(), Broken> {
    // In order of arrival, each with the time it is due. An empty one is the end of the stream.
    let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut ended = false;
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let due = waiting.front().map(|(due, _)| *due);
        tokio::select! {
            read = from.read(&mut buffer), if !ended => {
                if direction.keep(&buffer[..*read.as_ref().unwrap_or(&0)]) {
                    ended = read.unwrap_or(0) == 0;
                    continue;
                }
                // Data that was sent before must be delivered first.
                let earlier = direction.take_delivered();
                if !earlier.is_empty() {
                    waiting.push_back((Instant::now(), earlier));
                }
                let replies = match direction {
                    Direction::ToClient => state.replies.fetch_add(1, Ordering::SeqCst),
                    Direction::ToServer(_) => 0,
                };
                let fate = fate(state.mode(), direction, replies);
                if read.is_err() && !matches!(fate, Fate::Swallow) {
                    return Err(Broken);
                }
                let bytes = &buffer[..read.unwrap_or(0)];
                ended = bytes.is_empty();
                state.bytes[direction.index()].fetch_add(bytes.len(), Ordering::SeqCst);
                if !ended && matches!(direction, Direction::ToServer(_)) {
                    state.sent.fetch_add(1, Ordering::SeqCst);
                }
                match fate {
                    Fate::Forward(delay) => waiting.push_back((Instant::now() + delay, bytes.to_vec())),
                    Fate::Mangle => waiting.push_back((Instant::now(), mangled(bytes))),
                    Fate::Rewrite { from, to } => waiting.push_back((Instant::now(), rewritten(bytes, from, to))),
                    Fate::Replace(other) => {
                        waiting.push_back((Instant::now(), if ended { Vec::new() } else { other.to_vec() }));
                    }
                    Fate::Swallow => {
                        state.swallowing.fetch_add(1, Ordering::SeqCst);
                        return swallow(from, &mut buffer).await;
                    }
                    // An orderly end is not a reply.
                    Fate::Reset if ended => waiting.push_back((Instant::now(), Vec::new())),
                    Fate::Reset => return Err(Broken),
                }
            }
            bytes = direction.delivered() => {
                if !bytes.is_empty() {
                    waiting.push_back((Instant::now(), bytes));
                }
                if ended && !direction.is_kept() {
                    waiting.push_back((Instant::now(), Vec::new()));
                }
            }
            () = until(due) => {
                let Some((_, bytes)) = waiting.pop_front() else { continue };
                if bytes.is_empty() {
                    to.shutdown().await?;
                    return Ok(());
                }
                to.write_all(&bytes).await?;
            }
        }
    }
}

/// The connection must be reset, or one side has reset it.
pub(super) struct Broken;

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self
    }
}

#[derive(Clone, Copy)]
pub(super) enum Direction<'a> {
    ToServer(&'a Line),
    ToClient,
}

impl Direction<'_> {
    fn keep(self, bytes: &[u8]) -> bool {
        matches!(self, Self::ToServer(line) if line.keep(bytes))
    }

    fn take_delivered(self) -> Vec<u8> {
        match self {
            Self::ToServer(line) => line.take_delivered(),
            Self::ToClient => Vec::new(),
        }
    }

    fn is_kept(self) -> bool {
        matches!(self, Self::ToServer(line) if line.is_kept())
    }

    const fn index(self) -> usize {
        match self {
            Self::ToServer(_) => 0,
            Self::ToClient => 1,
        }
    }

    async fn delivered(self) -> Vec<u8> {
        match self {
            Self::ToServer(line) => line.delivered().await,
            Self::ToClient => future::pending().await,
        }
    }
}

enum Fate {
    Forward(Duration),
    Mangle,
    Rewrite { from: &'static str, to: &'static str },
    Replace(&'static [u8]),
    Swallow,
    Reset,
}

/// The fate of what comes in a direction, after so many replies.
fn fate(mode: Mode, direction: Direction<'_>, replies: usize) -> Fate {
    use Direction::{ToClient, ToServer};
    match (mode, direction) {
        (Mode::Delay { to_server: delay, .. }, ToServer(_)) => Fate::Forward(delay),
        (Mode::Delay { to_client: delay, .. }, ToClient) => Fate::Forward(delay),
        (Mode::Blackhole { to_server: true, .. }, ToServer(_)) => Fate::Swallow,
        (Mode::Blackhole { to_client: true, .. }, ToClient) => Fate::Swallow,
        (Mode::DropReplies, ToClient) => Fate::Reset,
        (Mode::Refuse, _) => Fate::Reset,
        (Mode::FallSilent { after }, ToClient) if replies >= after => Fate::Swallow,
        (Mode::Mangle, ToClient) => Fate::Mangle,
        (Mode::Rewrite { from, to }, ToClient) => Fate::Rewrite { from, to },
        (Mode::Replace(other), ToClient) => Fate::Replace(other),
        _ => Fate::Forward(Duration::ZERO),
    }
}

/// Half of the replies stay as they are, or no client would come beyond its first request. Of the others some bytes are changed,
/// lost, or come twice.
fn mangled(bytes: &[u8]) -> Vec<u8> {
    let mut mangled = bytes.to_vec();
    if bytes.is_empty() || fastrand::bool() {
        return mangled;
    }
    let at = fastrand::usize(..bytes.len());
    let to = bytes.len().min(at + fastrand::usize(1..8));
    match fastrand::u8(..4) {
        0 => drop(mangled.drain(at..to)),
        1 => drop(mangled.splice(at..at, bytes[at..to].iter().copied())),
        2 => mangled[at] ^= 1 << fastrand::u8(..8),
        _ => mangled[at..to].iter_mut().for_each(|byte| *byte = fastrand::u8(..)),
    }
    mangled
}

fn rewritten(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len(), "a reply keeps its length");
    let mut rewritten = bytes.to_vec();
    for at in (0..bytes.len()).filter(|at| bytes[*at..].starts_with(from.as_bytes())) {
        rewritten[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    rewritten
}

/// Reads for ever, so that the sender never notices; only a cut or the end of the proxy ends it.
async fn swallow(mut from: ReadHalf<'_>, buffer: &mut [u8]) -> Result<(), Broken> {
    while from.read(buffer).await.is_ok_and(|length| length > 0) {}
    future::pending().await
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => future::pending().await,
    }
}
