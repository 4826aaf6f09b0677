//! A socket that ends when one answer of the server grows too large.
//!
//! The client gathers an answer in memory until it is whole, however large it says that it will be. Answers of a lock
//! store are small, so a server that sends more is broken, or means harm. This module only follows where one answer
//! ends; the client reads its content.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::reply::fault::TooLarge;

/// The most bytes and values of one answer. Each value costs the client far more memory than it has on the wire. The
/// largest useful answer is the list of the slots of a cluster that was cut into single ones.
const MOST_BYTES: u64 = 16 * 1024 * 1024;
const MOST_VALUES: u64 = 1024 * 1024;

/// The client does not accept deeper lists either.
const MOST_DEPTH: usize = 100;

/// A socket with the answer that is coming in.
pub(crate) struct Bounded<S> {
    socket: S,
    answer: Answer,
    /// Tells the callers whose requests end with the connection why it has ended.
    was_too_large: Arc<AtomicBool>,
}

impl<S> Bounded<S> {
    pub(crate) fn new(socket: S, was_too_large: Arc<AtomicBool>) -> Self {
        Self { socket, answer: Answer::default(), was_too_large }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, into))?;
        Poll::Ready(self.answer.take(&into.filled()[before..]).map_err(|too_large| {
            self.was_too_large.store(true, Ordering::Release);
            io::Error::new(io::ErrorKind::InvalidData, too_large)
        }))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// How much of one answer, or of one push, has come, and what is still to come.
#[derive(Debug, Default)]
struct Answer {
    bytes: u64,
    values: u64,
    /// How many values each list that has begun still wants, the outermost one first.
    lists: Vec<u64>,
    part: ReplyPart,
}

/// The part of an answer that the next byte belongs to.
#[derive(Debug, Default)]
enum ReplyPart {
    /// It says of what kind the next value is.
    #[default]
    Kind,
    /// The rest of the line, which may be a length.
    Line { kind: u8, length: u64, is_negative: bool },
    /// This many bytes of a text, with the end of its line.
    Text(u64),
}

impl Answer {
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), TooLarge> {
        while let Some((first, rest)) = bytes.split_first() {
            let taken = match &mut self.part {
                ReplyPart::Kind => {
                    self.values += 1;
                    self.part = ReplyPart::Line { kind: *first, length: 0, is_negative: false };
                    bytes = rest;
                    1
                }
                ReplyPart::Line { length, is_negative, .. } => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let line = &bytes[..end.unwrap_or(bytes.len())];
                    for byte in line {
                        match byte {
                            b'0'..=b'9' => *length = length.saturating_mul(10).saturating_add(u64::from(byte - b'0')),
                            b'-' => *is_negative = true,
                            _ => {}
                        }
                    }
                    let taken = line.len() + usize::from(end.is_some());
                    bytes = &bytes[taken..];
                    if end.is_some() {
                        self.end_line()?;
                    }
                    taken
                }
                ReplyPart::Text(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= taken as u64;
                    let is_over = *left == 0;
                    bytes = &bytes[taken..];
                    if is_over {
                        self.end_value();
                    }
                    taken
                }
            };
            // If these bytes ended the answer, `end_value` has reset the counters, and they must not count for the next one.
            if !self.is_new() {
                self.bytes += taken as u64;
            }
            if self.bytes > MOST_BYTES || self.values > MOST_VALUES || self.lists.len() > MOST_DEPTH {
                return Err(TooLarge);
            }
        }
        Ok(())
    }

    fn is_new(&self) -> bool {
        self.values == 0
    }

    fn end_line(&mut self) -> Result<(), TooLarge> {
        let ReplyPart::Line { kind, length, is_negative } = std::mem::take(&mut self.part) else { return Ok(()) };
        let length = if is_negative { 0 } else { length };
        let values = match kind {
            b'$' | b'!' | b'=' if !is_negative => {
                // The announced length is enough: the text itself is not waited for.
                if self.bytes.saturating_add(length) > MOST_BYTES {
                    return Err(TooLarge);
                }
                self.part = ReplyPart::Text(length + 2);
                return Ok(());
            }
            b'*' | b'~' | b'>' => length,
            b'%' => length.saturating_mul(2),
            // And the value that it is about.
            b'|' => length.saturating_mul(2).saturating_add(1),
            _ => 0,
        };
        if self.values.saturating_add(values) > MOST_VALUES {
            return Err(TooLarge);
        }
        if values == 0 {
            self.end_value();
        } else {
            self.lists.push(values);
        }
        Ok(())
    }

    fn end_value(&mut self) {
        self.part = ReplyPart::Kind;
        while let Some(left) = self.lists.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.lists.pop();
        }
        (self.bytes, self.values) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte by byte, and in one go.
    fn ends(text: &[u8]) -> bool {
        let (mut answer, mut whole) = (Answer::default(), Answer::default());
        text.chunks(1).for_each(|byte| answer.take(byte).unwrap());
        whole.take(text).unwrap();
        assert_eq!(answer.is_new(), whole.is_new());
        assert_eq!(answer.bytes, whole.bytes);
        answer.is_new()
    }

    #[test]
    fn the_end_of_each_answer_is_found() {
        for text in [
            "+OK\r\n",
            "-ERR no 12\r\n",
            ":-7\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$4\r\n\r\n\r\n\r\n",
            "*-1\r\n",
            "*0\r\n",
            "_\r\n",
            "#t\r\n",
            ",1.25\r\n",
            "(3492890328409238509324850943850943825024385\r\n",
            "=5\r\ntxt:a\r\n",
            "!3\r\nERR\r\n",
            "*2\r\n*1\r\n:1\r\n%1\r\n+a\r\n$1\r\nb\r\n",
            "~2\r\n+a\r\n+b\r\n",
            ">2\r\n+message\r\n$1\r\nx\r\n",
            "|1\r\n+ttl\r\n:3\r\n*1\r\n:1\r\n",
        ] {
            assert!(ends(text.as_bytes()), "{text:?}");
            for end in 1..text.len() {
                assert!(!ends(&text.as_bytes()[..end]), "{:?}", &text[..end]);
            }
            assert!(ends(text.repeat(3).as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn what_is_too_large_is_refused_as_soon_as_that_is_known() {
        let announced = |text: &str| Answer::default().take(text.as_bytes()).is_err();
        for text in
            ["$16777217\r\n", "*1048576\r\n", "%600000\r\n", "!99999999999999999999\r\n", "*2\r\n:1\r\n*1048576\r\n"]
        {
            assert!(announced(text), "{text}");
        }
        assert!(!announced("$16000000\r\n") && !announced("*1000000\r\n"));
        assert!(announced(&"*1\r\n".repeat(101)) && !announced(&"*1\r\n".repeat(99)));
        // Two texts that are none too large alone, and a line without an end.
        let mut answer = Answer::default();
        answer.take(b"*2\r\n$9000000\r\n").unwrap();
        answer.take(&vec![b'x'; 9_000_002]).unwrap();
        answer.take(b"$9000000\r\n").unwrap_err();
        let mut endless = Answer::default();
        let kilobyte = [b'+'; 1024];
        let taken = (0..20_000).take_while(|_| endless.take(&kilobyte).is_ok()).count();
        assert!((16_000..=16_384).contains(&taken), "{taken}");
    }

    #[test]
    fn many_small_answers_are_not_one_large_one() {
        let mut answer = Answer::default();
        let many = b"$3\r\nabc\r\n".repeat(10_000);
        (0..300).for_each(|_| answer.take(&many).unwrap());
    }
}
