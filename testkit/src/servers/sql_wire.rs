//! As much of the MySQL protocol as it takes to log in as `root` without a password and run a statement.
//!
//! Asking over the wire, not with the server's own client program, tests what the clients under test will meet: plain
//! TCP, the same login plugin, and a deadline on every step.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where a server keeps temporary tables. It must be its own folder: a server that starts removes the temporary tables
/// that it finds there, also those of a neighbour that is just being set up.
pub(crate) const TEMPORARY: &str = "TMPDIR";

/// Runs one statement. Rows come back as lines with tabs between columns, a change as `OK` and the number of rows.
pub(crate) fn ask(addr: SocketAddr, statement: &str) -> io::Result<String> {
    let mut wire = Wire { stream: TcpStream::connect_timeout(&addr, Duration::from_secs(2))?, sequence: 0 };
    wire.stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    wire.log_in()?;
    wire.query(statement)
}

/// The option of both servers for their data.
pub(super) fn data_option(folder: &Path) -> String {
    format!("--datadir={}", folder.join("data").display())
}

/// Runs a set-up program to its end; its words are part of the error.
pub(crate) fn run_once(mut command: Command) -> io::Result<()> {
    output_of(&mut command).map(drop)
}

/// The same, and what it printed.
pub(crate) fn output_of(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(io::Error::other(format!("{}\n{out}{err}", output.status)))
}

const OK: u8 = 0x00;
const MORE_LOGIN_DATA: u8 = 0x01;
const NULL: u8 = 0xfb;
const SWITCH_PLUGIN: u8 = 0xfe;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;

struct Wire {
    stream: TcpStream,
    sequence: u8,
}

impl Wire {
    fn log_in(&mut self) -> io::Result<()> {
        // The greeting's random bytes are for hashing a password, and there is none.
        self.read()?;
        // Long password, protocol 4.1, transactions, secure connection, plugin names.
        let abilities: u32 = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x8_0000;
        let mut hello = abilities.to_le_bytes().to_vec();
        hello.extend((1_u32 << 24).to_le_bytes());
        hello.push(45);
        hello.extend([0; 23]);
        hello.extend(b"root\0\0caching_sha2_password\0");
        self.write(&hello)?;
        loop {
            match self.read()?.first() {
                Some(&OK) => return Ok(()),
                Some(&SWITCH_PLUGIN) => self.write(&[])?,
                Some(&MORE_LOGIN_DATA) => {}
                other => return Err(io::Error::other(format!("unexpected answer to the login: {other:?}"))),
            }
        }
    }

    fn query(&mut self, statement: &str) -> io::Result<String> {
        self.sequence = 0;
        self.write(&[b"\x03", statement.as_bytes()].concat())?;
        let first = self.read()?;
        if first.first() == Some(&OK) {
            return Ok(format!("OK {}", Fields(&first[1..]).number()?));
        }
        let columns = Fields(&first).number()?;
        // The columns' descriptions and the mark after them.
        for _ in 0..=columns {
            self.read()?;
        }
        let mut lines = Vec::new();
        loop {
            let row = self.read()?;
            if row.first() == Some(&END) && row.len() < 9 {
                return Ok(lines.join("\n"));
            }
            let mut fields = Fields(&row);
            let cells = (0..columns).map(|_| fields.text()).collect::<io::Result<Vec<_>>>()?;
            lines.push(cells.join("\t"));
        }
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        self.sequence = head[3].wrapping_add(1);
        let mut packet = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
        self.stream.read_exact(&mut packet)?;
        match packet.split_first() {
            Some((&ERROR, rest)) => Err(io::Error::other(String::from_utf8_lossy(rest.get(2..).unwrap_or(rest)))),
            _ => Ok(packet),
        }
    }

    fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        let length = (packet.len() as u32).to_le_bytes();
        let head = [length[0], length[1], length[2], self.sequence];
        self.stream.write_all(&[&head, packet].concat())
    }
}

/// Length-encoded numbers and texts, read from the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn number(&mut self) -> io::Result<u64> {
        let [first] = self.bytes(1)?.try_into().map_err(|_| truncated())?;
        let length = match first {
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            small => return Ok(u64::from(small)),
        };
        Ok(self.bytes(length)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn text(&mut self) -> io::Result<String> {
        if self.0.first() == Some(&NULL) {
            self.bytes(1)?;
            return Ok("NULL".to_owned());
        }
        let length = self.number()?;
        Ok(String::from_utf8_lossy(self.bytes(length as usize)?).into_owned())
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
