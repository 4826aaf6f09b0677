//! etcd, one node.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Recipe, free_port};
use crate::Result;
use crate::find::{Tree, find_program, missing};

/// A single etcd node; its data survives a kill.
#[derive(Clone, Debug)]
pub struct Etcd {
    /// For the other members, of which there are none.
    pub peer_port: u16,
    /// More options, as on the command line; they overrule the recipe's.
    pub extra: Vec<String>,
}

impl Default for Etcd {
    fn default() -> Self {
        Self { peer_port: free_port(), extra: Vec::new() }
    }
}

impl Recipe for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn eased(&self) -> &'static [&'static str] {
        &["--heartbeat-interval", "--election-timeout"]
    }

    fn command(&self, folder: &Path, port: u16) -> Result<Command> {
        // The unpacked one first: the system's own may be older.
        let unpacked = Tree::named("etcd").root().join("usr/bin/etcd");
        let program = unpacked.is_file().then_some(unpacked).or_else(|| find_program("etcd"));
        let client = format!("http://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let mut command = Command::new(program.ok_or_else(|| missing("etcd"))?);
        command.args(["--name", "n1", "--logger", "zap", "--log-level", "error"]);
        command.arg("--data-dir").arg(folder.join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("n1={peer}")]);
        // A node alone still holds an election, and waits this long before it.
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        command.args(&self.extra);
        Ok(command)
    }

    fn ask(&self, addr: SocketAddr, request: &str) -> io::Result<String> {
        let (path, body) = request.split_once(' ').unwrap_or((request, ""));
        let method = if body.is_empty() { "GET" } else { "POST" };
        let mut stream = TcpStream::connect_timeout(&addr, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        let (head, body) = reply.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.lines().next().unwrap_or_default();
        if status.contains(" 200 ") { Ok(body.to_owned()) } else { Err(io::Error::other(format!("{status}: {body}"))) }
    }

    fn check(&self, addr: SocketAddr) -> io::Result<()> {
        // The health page does a linearizable read, so this includes a leader.
        let health = self.ask(addr, "/health")?;
        if health.contains(r#""health":"true""#) { Ok(()) } else { Err(io::Error::other(health)) }
    }

    fn url(&self, port: u16) -> String {
        format!("http://127.0.0.1:{port}")
    }
}
