//! As much of PostgreSQL's protocol as it takes to log in without a password and run a statement.
//!
//! For the same reasons as in [`sql_wire`](super::sql_wire): plain TCP, and a deadline on every step.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The account that needs no password.
pub(super) const ACCOUNT: &str = "dlock";

/// The database that every server has from its start on.
pub(super) const DATABASE: &str = "postgres";

/// Runs one statement. Rows come back as lines with tabs between columns, a change as `OK` and the number of rows.
pub(super) fn ask(addr: SocketAddr, statement: &str) -> io::Result<String> {
    Wire::open(addr)?.query(statement)
}

/// Only a server that stands still comes near it, also on a machine with a slow disk.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Version 3.0 of the protocol.
const VERSION: u32 = 3 << 16;
const LOGGED_IN: [u8; 4] = [0; 4];

/// One session.
pub(super) struct Wire(TcpStream);

impl Wire {
    pub(super) fn open(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, ANSWER_LIMIT)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        let mut wire = Self(stream);
        let names = format!("user\0{ACCOUNT}\0database\0{DATABASE}\0\0");
        wire.write(&[&VERSION.to_be_bytes(), names.as_bytes()].concat())?;
        loop {
            match wire.read()? {
                (b'R', how) if how != LOGGED_IN => return Err(io::Error::other("it wants a password")),
                (b'Z', _) => return Ok(wire),
                // Parameters of the server, which this client does not need.
                _ => {}
            }
        }
    }

    pub(super) fn query(&mut self, statement: &str) -> io::Result<String> {
        self.0.write_all(b"Q")?;
        self.write(&[statement.as_bytes(), b"\0"].concat())?;
        let (mut rows, mut done) = (None, String::new());
        loop {
            let (kind, body) = self.read()?;
            match kind {
                b'T' => rows = Some(Vec::new()),
                b'D' => rows.get_or_insert_default().push(Fields(&body).row()?),
                // Such as `INSERT 0 1`, or `CREATE TABLE`.
                b'C' => {
                    let tag = Fields(&body).text()?;
                    done =
                        format!("OK {}", tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0_u64));
                }
                b'Z' => return Ok(rows.map_or(done, |rows| rows.join("\n"))),
                _ => {}
            }
        }
    }

    /// The kind of a message, and what is in it. An error of the server's is an error here, with its code in front.
    fn read(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        // The length counts itself.
        let length = u32::from_be_bytes(length).checked_sub(4).ok_or_else(truncated)?;
        let mut body = vec![0; length as usize];
        self.0.read_exact(&mut body)?;
        if kind == b'E' { Err(Fields(&body).error()?) } else { Ok((kind, body)) }
    }

    fn write(&mut self, body: &[u8]) -> io::Result<()> {
        let length = body.len() as u32 + 4;
        self.0.write_all(&[&length.to_be_bytes(), body].concat())
    }
}

/// The parts of a message, read from the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn row(&mut self) -> io::Result<String> {
        let columns = self.number::<2>()?;
        let cells = (0..columns).map(|_| match self.number::<4>()? {
            u32::MAX => Ok("NULL".to_owned()),
            length => Ok(String::from_utf8_lossy(self.bytes(length as usize)?).into_owned()),
        });
        Ok(cells.collect::<io::Result<Vec<_>>>()?.join("\t"))
    }

    /// Texts with a letter in front that says what each is.
    fn error(&mut self) -> io::Result<io::Error> {
        let (mut code, mut message) = (String::new(), String::new());
        loop {
            match self.number::<1>()? as u8 {
                0 => return Ok(io::Error::other(format!("{code}: {message}"))),
                b'C' => code = self.text()?,
                b'M' => message = self.text()?,
                _ => drop(self.text()?),
            }
        }
    }

    /// A text that a zero ends.
    fn text(&mut self) -> io::Result<String> {
        let length = self.0.iter().position(|byte| *byte == 0).ok_or_else(truncated)?;
        let text = String::from_utf8_lossy(self.bytes(length)?).into_owned();
        self.bytes(1)?;
        Ok(text)
    }

    fn number<const LENGTH: usize>(&mut self) -> io::Result<u32> {
        Ok(self.bytes(LENGTH)?.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    fn bytes(&mut self, length: usize) -> io::Result<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(truncated)?;
        self.0 = rest;
        Ok(taken)
    }
}

fn truncated() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}
