//! The wall clock of a server that asks the kernel itself for the time, as programs in Go do. The machine's own stays as it is.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Instance;
use crate::error::Context;
use crate::{Error, Result};

/// The wall clock of one server that runs.
///
/// The kernel lends each process the code that tells the time (its vDSO). In this server's copy of it, the function
/// that such programs call is replaced by one that asks the kernel and adds the difference. Clocks that only measure
/// stay as they are.
#[derive(Debug)]
pub struct VdsoClock {
    memory: File,
    /// Where the seconds stand in the server's memory.
    ahead: u64,
    server: SocketAddr,
}

/// `clock_gettime(clock in edi, time in rsi)` for x86-64, with the seconds behind it.
#[rustfmt::skip]
const CODE: [u8; 32] = [
    0xb8, 0xe4, 0, 0, 0,            // mov eax, 228 (clock_gettime)
    0x0f, 0x05,                     // syscall
    0x85, 0xff,                     // test edi, edi (CLOCK_REALTIME is 0)
    0x75, 0x0a,                     // jnz to the return
    0x48, 0x8b, 0x15, 6, 0, 0, 0,   // mov rdx, the seconds
    0x48, 0x01, 0x16,               // add the seconds of the time, rdx
    0xc3, 0x90, 0x90,               // ret
    0, 0, 0, 0, 0, 0, 0, 0,
];
/// Where the seconds are in it.
const SECONDS_AT: u64 = 24;

const HALF_A_DAY: i64 = 12 * 3600;

impl VdsoClock {
    /// The clock of this server, which goes as the machine's does until it is set. It ends with a restart of the server.
    pub fn of(server: &Instance) -> Result<Self> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(Error::new("the clock of a program in Go can be set on Linux on x86-64 only"));
        }
        let pid = server.pid().ok_or_else(|| Error::new("the server does not run"))?;
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).context("the server's memory")?;
        let range = maps.lines().find(|line| line.ends_with("[vdso]")).and_then(|line| line.split(' ').next());
        let range = range.and_then(|range| range.split_once('-')).ok_or_else(|| Error::new("no vDSO"))?;
        let address = |text| u64::from_str_radix(text, 16).map_err(|_| Error::new("no address of the vDSO"));
        let (begin, end) = (address(range.0)?, address(range.1)?);
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"));
        let memory = memory.context("the server's memory")?;
        let mut image = vec![0; usize::try_from(end - begin).unwrap_or_default()];
        memory.read_exact_at(&mut image, begin).context("the server's vDSO")?;
        let function = function(&image, b"__vdso_clock_gettime").ok_or_else(|| Error::new("no clock in the vDSO"))?;
        // While it stands still, no thread runs the code that changes.
        server.pause()?;
        let written = memory.write_all_at(&CODE, begin + function);
        server.resume()?;
        written.context("the server's vDSO")?;
        Ok(Self { memory, ahead: begin + function + SECONDS_AT, server: server.addr() })
    }

    /// Sets the clock this many seconds ahead of the machine's, or behind.
    pub fn set_ahead(&self, seconds: i64) -> Result<()> {
        self.memory.write_all_at(&seconds.to_ne_bytes(), self.ahead).context("the server's clock")
    }

    /// How many seconds it is ahead by what the server says, which must speak HTTP. Up to half a day.
    pub fn shown_ahead(&self) -> Result<i64> {
        let mut stream = TcpStream::connect(self.server).context("the server")?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).context("the server")?;
        write!(stream, "GET /health HTTP/1.0\r\n\r\n").context("the server")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).context("the server's answer")?;
        let date = reply.lines().find_map(|line| line.strip_prefix("Date: "));
        // `Thu, 26 Nov 2026 10:55:03 GMT`.
        let time =
            date.and_then(|date| date.split(' ').nth(4)).ok_or_else(|| Error::new(format!("no date: {reply}")))?;
        let seconds = time.split(':').try_fold(0, |sum, part| part.parse::<i64>().map(|part| sum * 60 + part));
        let shown = seconds.map_err(|_| Error::new(format!("no time: {time}")))?;
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().cast_signed());
        Ok((shown - machine + HALF_A_DAY).rem_euclid(2 * HALF_A_DAY) - HALF_A_DAY)
    }
}

/// Where this function begins in the image of the vDSO, a library in the format ELF.
fn function(image: &[u8], name: &[u8]) -> Option<u64> {
    const DYNSYM: u64 = 11;
    let number = |at: u64, bytes: usize| {
        let mut number = [0; 8];
        let at = usize::try_from(at).ok()?;
        number[..bytes].copy_from_slice(image.get(at..at.checked_add(bytes)?)?);
        Some(u64::from_le_bytes(number))
    };
    let (sections, size, count) = (number(0x28, 8)?, number(0x3a, 2)?, number(0x3c, 2)?);
    let section = |index: u64| sections + index * size;
    let symbols = (0..count).map(section).find(|section| number(section + 4, 4) == Some(DYNSYM))?;
    let (first, length) = (number(symbols + 24, 8)?, number(symbols + 32, 8)?);
    let names = number(section(number(symbols + 40, 4)?) + 24, 8)?;
    let symbol = (0..length / 24).map(|index| first + index * 24).find(|symbol| {
        let begin = number(*symbol, 4).and_then(|at| usize::try_from(names + at).ok());
        let text = begin.and_then(|begin| image.get(begin..)).and_then(|rest| rest.split(|byte| *byte == 0).next());
        text == Some(name)
    })?;
    let (at, length) = (number(symbol + 8, 8)?, number(symbol + 16, 8)?);
    // The seconds must be written in one step.
    (at % 8 == 0 && length >= CODE.len() as u64).then_some(at)
}
