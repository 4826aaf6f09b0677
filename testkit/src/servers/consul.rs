//! Consul, one server that keeps its data.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Recipe, free_port};
use crate::Result;
use crate::find::{Tree, find_program, missing};

/// A single server that is its own agent; its data survives a kill.
#[derive(Clone, Debug)]
pub struct Consul {
    /// For the other servers, of which there are none.
    pub server_port: u16,
    /// For the gossip of agents.
    pub gossip_port: u16,
    /// More options, as on the command line; they overrule the recipe's.
    pub extra: Vec<String>,
}

impl Default for Consul {
    fn default() -> Self {
        Self { server_port: free_port(), gossip_port: free_port(), extra: Vec::new() }
    }
}

impl Consul {
    /// The program, for tests that run `consul lock`.
    ///
    /// # Errors
    /// If it is not installed.
    pub fn program() -> Result<std::path::PathBuf> {
        let unpacked = Tree::named("consul").root().join("usr/bin/consul");
        let program = unpacked.is_file().then_some(unpacked).or_else(|| find_program("consul"));
        program.ok_or_else(|| missing("consul"))
    }
}

impl Recipe for Consul {
    fn name(&self) -> &'static str {
        "consul"
    }

    fn eased(&self) -> &'static [&'static str] {
        &["-hcl=performance{", "-hcl=limits{"]
    }

    fn command(&self, folder: &Path, port: u16) -> Result<Command> {
        let mut command = Command::new(Self::program()?);
        command.args(["agent", "-server", "-bootstrap-expect=1", "-bind=127.0.0.1", "-client=127.0.0.1", "-node=n1"]);
        command.arg(format!("-data-dir={}", folder.join("data").display()));
        command.arg(format!("-http-port={port}"));
        command.args(["-dns-port=-1", "-grpc-port=-1", "-serf-wan-port=-1", "-disable-host-node-id"]);
        command.arg(format!("-server-port={}", self.server_port));
        command.arg(format!("-serf-lan-port={}", self.gossip_port));
        // A server alone still holds an election: by default it takes five times as long. The suite runs over a server with that
        // default too. By default the shortest session is of 10 s: short leases make short tests.
        command.args(["-hcl=performance{raft_multiplier=1}", "-hcl=session_ttl_min=\"1s\""]);
        // All tests together come from one address. By default it has 200 connections.
        command.args(["-hcl=limits{http_max_conns_per_client=4000}", "-hcl=disable_update_check=true"]);
        command.args(&self.extra);
        Ok(command)
    }

    /// `METHOD PATH [BODY]`.
    fn ask(&self, addr: SocketAddr, request: &str) -> io::Result<String> {
        let (method, rest) = request.split_once(' ').unwrap_or(("GET", request));
        let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut stream = TcpStream::connect_timeout(&addr, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        let (head, body) = reply.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.lines().next().unwrap_or_default();
        if status.contains(" 200 ") {
            return Ok(body.to_owned());
        }
        let kind = if status.contains(" 404 ") { io::ErrorKind::NotFound } else { io::ErrorKind::Other };
        Err(io::Error::new(kind, format!("{status}: {body}")))
    }

    /// A session needs a leader and the server's own node in the catalogue, which comes a moment after the leader.
    fn check(&self, addr: SocketAddr) -> io::Result<()> {
        let made = self.ask(addr, r#"PUT /v1/session/create {"TTL":"10s"}"#)?;
        let id = made.split('"').nth(3).ok_or(io::ErrorKind::InvalidData)?;
        self.ask(addr, &format!("PUT /v1/session/destroy/{id}")).map(drop)
    }

    fn url(&self, port: u16) -> String {
        format!("consul://127.0.0.1:{port}")
    }
}
