//! A Redis primary with replicas, and the sentinels that watch over them.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use super::redis::{self, Redis, wait_until_followed};
use super::{Certificates, Instance, Recipe, free_port};
use crate::error::Context;
use crate::find::{find_program, missing};
use crate::{Error, Proxy, Result, block_until};

/// The sentinels' name of the primary.
const NAME: &str = "main";

/// One sentinel.
#[derive(Clone, Debug)]
pub struct Sentinel {
    /// Where the primary is at the beginning.
    pub primary: u16,
    /// After this much silence, in milliseconds, the primary counts as down.
    pub down_after_ms: u32,
    /// More lines of its file.
    pub extra: Vec<String>,
}

impl Recipe for Sentinel {
    fn name(&self) -> &'static str {
        "sentinel"
    }

    fn command(&self, folder: &Path, port: u16) -> Result<Command> {
        let program = find_program("redis-server").ok_or_else(|| missing("redis-server"))?;
        let file = folder.join("sentinel.conf");
        // The sentinel writes its findings into this file.
        if !file.exists() {
            let Self { primary, down_after_ms, extra } = self;
            let text = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {primary} 2\n\
                 sentinel down-after-milliseconds {NAME} {down_after_ms}\nsentinel failover-timeout {NAME} 2000\n\
                 sentinel parallel-syncs {NAME} 1\n{}\n",
                folder.display(),
                extra.join("\n")
            );
            fs::write(&file, text).context("the sentinel's file")?;
        }
        let mut command = Command::new(program);
        command.arg(&file).arg("--sentinel");
        Ok(command)
    }

    fn ask(&self, addr: SocketAddr, request: &str) -> io::Result<String> {
        redis::ask(addr, request)
    }

    fn check(&self, addr: SocketAddr) -> io::Result<()> {
        match self.ask(addr, "PING") {
            Ok(reply) if reply == "PONG" => Ok(()),
            Err(error) if error.to_string().starts_with("NOAUTH") => Ok(()),
            other => Err(io::Error::other(other?)),
        }
    }

    fn url(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}/")
    }
}

/// A primary, replicas and three sentinels.
pub struct RedisSentinels {
    /// The first was the primary at the beginning.
    pub servers: Vec<Instance>,
    /// The sentinels.
    pub sentinels: Vec<Instance>,
    /// In front of the first server, if it was asked for: sentinels and clients know only this one.
    pub proxy: Option<Proxy>,
    /// The ports by which sentinels and clients know the servers.
    ports: Vec<u16>,
    /// And those by which clients know the sentinels.
    asked: Vec<u16>,
    /// Where all of them speak TLS with each other and with clients.
    certificates: Option<Certificates>,
}

impl RedisSentinels {
    /// Starts them, and returns when the sentinels know everybody. `options` are those of the servers.
    pub fn start(replicas: usize, down_after_ms: u32, behind_proxy: bool, options: &[&str]) -> Result<Self> {
        Self::of(replicas, down_after_ms, behind_proxy, options, None)
    }

    /// The same with TLS everywhere; the ports of the instances stay plain.
    pub fn start_with_tls(replicas: usize, down_after_ms: u32) -> Result<Self> {
        Self::of(replicas, down_after_ms, false, &[], Some(Certificates::make()?))
    }

    fn of(
        replicas: usize,
        down_after_ms: u32,
        behind_proxy: bool,
        options: &[&str],
        certificates: Option<Certificates>,
    ) -> Result<Self> {
        // By default a primary waits for 5 s for further replicas. That time is in each start, and in no test.
        let options = [options, &["--repl-diskless-sync-delay", "0"]].concat();
        let (mut servers, mut ports, mut proxy) = (Vec::new(), Vec::<u16>::new(), None);
        for number in 0..=replicas {
            let mut extra: Vec<String> = options.iter().map(ToString::to_string).collect();
            let door = certificates.as_ref().map(|certificates| {
                let port = free_port();
                extra.extend(certificates.options(port));
                extra.extend(["--tls-replication", "yes"].map(str::to_owned));
                port
            });
            if let Some(primary) = ports.first() {
                extra.extend(["--replicaof".to_owned(), format!("127.0.0.1 {primary}")]);
            }
            let server = Instance::start(Redis { extra, ..Redis::default() })?;
            if number == 0 && behind_proxy {
                proxy = Some(Proxy::start(server.addr()).context("the proxy")?);
            }
            let known = proxy.as_ref().filter(|_| number == 0).map(Proxy::port).or(door);
            ports.push(known.unwrap_or(server.port()));
            servers.push(server);
        }
        wait_until_followed(&servers[0], &servers[1..])?;
        let (mut sentinels, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let mut extra = Vec::new();
            let door = certificates.as_ref().map(|certificates| {
                let port = free_port();
                extra.extend(certificates.settings(port).map(|(name, value)| format!("{name} {value}")));
                extra.push("tls-replication yes".to_owned());
                port
            });
            let sentinel = Instance::start(Sentinel { primary: ports[0], down_after_ms, extra })?;
            asked.push(door.unwrap_or(sentinel.port()));
            sentinels.push(sentinel);
        }
        let set = Self { servers, sentinels, proxy, ports, asked, certificates };
        let wanted = [format!("num-slaves\n{replicas}"), "num-other-sentinels\n2".to_owned()];
        for sentinel in &set.sentinels {
            block_until("the sentinels know everybody", || {
                sentinel.ask("SENTINEL MASTERS").is_ok_and(|masters| wanted.iter().all(|text| masters.contains(text)))
            })?;
        }
        Ok(set)
    }

    /// The address as clients write it.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.asked.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let hosts = hosts.join(",");
        match &self.certificates {
            None => format!("redis-sentinel://{hosts}/{NAME}"),
            Some(certificates) => format!("rediss-sentinel://{hosts}/{NAME}?{}", certificates.query()),
        }
    }

    /// The port that most sentinels tell.
    pub fn told(&self) -> Option<u16> {
        let ask = |sentinel: &Instance| {
            let answer = sentinel.ask(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}")).ok()?;
            answer.lines().nth(1)?.parse::<u16>().ok()
        };
        let told: Vec<u16> = self.sentinels.iter().filter_map(ask).collect();
        told.iter().copied().find(|port| told.iter().filter(|other| *other == port).count() * 2 > self.sentinels.len())
    }

    /// The server that is the primary now, by the sentinels' word and its own.
    pub fn primary(&self) -> Option<&Instance> {
        let told = self.told()?;
        let server = &self.servers[self.ports.iter().position(|port| *port == told)?];
        server.ask("ROLE").is_ok_and(|role| role.starts_with("master")).then_some(server)
    }

    /// Waits until another server than this one is the primary.
    pub fn wait_for_failover(&self, from: u16) -> Result<&Instance> {
        block_until("a failover", || self.primary().is_some_and(|server| server.port() != from))?;
        self.primary().ok_or_else(|| Error::new("the primary has gone again"))
    }
}

/// A port that is given to a server later.
pub(super) fn reserve() -> (u16, SocketAddr) {
    let port = free_port();
    (port, (Ipv4Addr::LOCALHOST, port).into())
}
