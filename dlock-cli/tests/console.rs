//! `dlock console`: a page for one store, which only this host can reach.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

fn dlock(folder: &TempDir, words: &[&str]) -> Command {
    // Only `run` makes it.
    std::fs::File::options().create(true).append(true).open(folder.path().join("locks.db")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    command.env("DLOCK_URL", format!("sqlite://{}/locks.db", folder.path().display())).args(words);
    command
}

/// A console that does not start.
fn refused(folder: &TempDir, words: &[&str]) -> Output {
    let mut command = dlock(folder, &[&["console", "--listen", "0.0.0.0:0"], words].concat());
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if !line.is_empty() {
        process.kill().unwrap();
    }
    assert_eq!(line, "", "it serves");
    process.wait_with_output().unwrap()
}

/// A program that serves or holds until it is dropped, and its first line.
struct Running(Child, String);

impl Running {
    fn start(folder: &TempDir, words: &[&str]) -> Self {
        let mut process = dlock(folder, words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(process, line.trim().to_owned())
    }

    fn console(folder: &TempDir, words: &[&str]) -> Self {
        Self::start(folder, &[&["console", "--listen", "127.0.0.1:0"], words].concat())
    }

    fn address(&self) -> &str {
        self.1.strip_prefix("http://").unwrap().split('/').next().unwrap()
    }

    fn open(&self, host: &str, request: &str) -> TcpStream {
        let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
        let (first, more) = head.split_once('\n').unwrap_or((head, ""));
        let more = if more.is_empty() { String::new() } else { format!("{more}\r\n") };
        let length = body.len();
        let mut stream = TcpStream::connect(self.address()).unwrap();
        write!(
            stream,
            "{first} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{more}content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    /// The status and the rest.
    fn ask(&self, host: &str, request: &str) -> (u16, String) {
        let mut answer = String::new();
        self.open(host, request).read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_page_is_served_and_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let console = Running::console(&folder, &[]);
    assert!(console.1.ends_with("/?store=store"), "{}", console.1);
    let (status, page) = console.ask(console.address(), "GET /");
    assert!(status == 200 && page.contains("<title>Locks</title>"), "{page}");
    assert_eq!(console.ask("localhost", "POST /break").0, 404);
    // A page from elsewhere can let its own name point to this host.
    for path in ["GET /", "GET /live"] {
        assert_eq!(console.ask("evil.example", path).0, 403);
    }
}

#[test]
fn the_address_is_told_as_json_too() {
    let folder = TempDir::new().unwrap();
    let mut command = dlock(&folder, &["--json", "console", "--listen", "127.0.0.1:0"]);
    let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap(), String::new());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut told = String::new();
    while !told.ends_with('}') {
        told += &lines.next().unwrap();
    }
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert!(told["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{told}");
}

#[test]
fn other_hosts_reach_it_only_if_that_is_wanted() {
    let folder = TempDir::new().unwrap();
    let alone = refused(&folder, &[]);
    assert_eq!(alone.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("--any-address"));
    let both = refused(&folder, &["--any-address", "--allow-break"]);
    assert_eq!(both.status.code(), Some(64), "nobody would know who breaks");
    let mut console = Running::start(&folder, &["console", "--listen", "0.0.0.0:0", "--any-address"]);
    console.1 = console.1.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(console.ask("ops.example", "GET /").0, 200);
}

#[test]
fn a_hold_is_broken_in_the_name_of_this_user() {
    let folder = TempDir::new().unwrap();
    let hold = ["run", "--ttl", "15s", "job", "sh", "-c", "echo held; read _"];
    let mut holder = Running::start(&folder, &hold);
    let console = Running::console(&folder, &["--allow-break", "--every", "20ms"]);
    let stream = console.open("localhost", "GET /live?store=store");
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut data = |part: &str| {
        lines.find(|line| line == &format!("event: {part}")).unwrap();
        let line = lines.next().unwrap();
        serde_json::from_str::<serde_json::Value>(line.strip_prefix("data: ").unwrap()).unwrap()
    };
    let token = data("about")["token"].as_str().unwrap().to_owned();
    let locks = data("locks");
    let (name, id) =
        (locks["locks"][0]["name"].as_str().unwrap(), locks["locks"][0]["holders"][0]["hold"].as_str().unwrap());
    let order = serde_json::json!({ "store": "store", "name": name, "hold": id, "why": "it hangs" });
    let head = format!("POST /break\ncontent-type: application/json\r\nx-dlock-token: {token}");
    let (status, said) = console.ask("localhost", &format!("{head}\n\n{order}"));
    assert!(status == 200 && said.contains("true"), "{said}");
    assert_eq!(holder.0.wait().unwrap().code(), Some(76), "the command has lost its lock");
    // Each token is good for one request.
    let (status, said) = console.ask("localhost", &format!("{head}\n\n{order}"));
    assert!(status == 403, "{said}");
    let next =
        std::iter::repeat_with(|| data("about")["token"].as_str().unwrap().to_owned()).find(|next| *next != token);
    let (status, said) = console.ask("localhost", &format!("{}\n\n{order}", head.replace(&token, &next.unwrap())));
    assert!(status == 409 && said.contains("nobody holds the lock now"), "{said}");
}
