//! A Redis primary with replicas, and the sentinels that watch over them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::find::{find_program, missing};
use super::redis::{self, Redis};
use super::{Instance, Recipe, free_port};
use crate::error::Context;
use crate::{Error, Proxy, Result};

/// What the sentinels call the primary.
const NAME: &str = "main";

/// One sentinel.
#[derive(Clone, Debug)]
pub struct Sentinel {
    /// Where the primary is at the beginning.
    pub primary: u16,
    /// After so many milliseconds of silence the primary counts as down.
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
        // It writes into it what it learns.
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
    /// Those who know which one it is.
    pub sentinels: Vec<Instance>,
    /// In front of the first server, if it was asked for: sentinels and clients know only this one.
    pub proxy: Option<Proxy>,
}

impl RedisSentinels {
    /// Starts them, and returns when the sentinels know everybody. `options` are those of the servers.
    pub fn start(replicas: usize, down_after_ms: u32, behind_proxy: bool, options: &[&str]) -> Result<Self> {
        let options = &[options, &["--repl-diskless-sync-delay", "0"]].concat();
        let primary = Instance::start(Redis::with(options))?;
        let proxy = behind_proxy.then(|| Proxy::start(primary.addr())).transpose().context("the proxy")?;
        let port = proxy.as_ref().map_or(primary.port(), Proxy::port);
        let mut servers = vec![primary];
        for _ in 0..replicas {
            let of = format!("127.0.0.1 {port}");
            let mut all = vec!["--replicaof", &of];
            all.extend(options);
            servers.push(Instance::start(Redis::with(&all))?);
        }
        for replica in &servers[1..] {
            until("a replica follows", || {
                replica.ask("INFO replication").is_ok_and(|info| info.contains("master_link_status:up"))
            })?;
        }
        let sentinel = || Sentinel { primary: port, down_after_ms, extra: Vec::new() };
        let sentinels = (0..3).map(|_| Instance::start(sentinel())).collect::<Result<Vec<_>>>()?;
        let set = Self { servers, sentinels, proxy };
        let wanted = [format!("num-slaves\n{replicas}"), "num-other-sentinels\n2".to_owned()];
        for sentinel in &set.sentinels {
            until("the sentinels know everybody", || {
                sentinel.ask("SENTINEL MASTERS").is_ok_and(|masters| wanted.iter().all(|text| masters.contains(text)))
            })?;
        }
        Ok(set)
    }

    /// The address as clients write it.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        format!("redis-sentinel://{}/{NAME}", hosts.join(","))
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
        let server = self.servers.iter().find(|server| server.port() == told)?;
        server.ask("ROLE").is_ok_and(|role| role.starts_with("master")).then_some(server)
    }

    /// Waits until another server than this one is the primary.
    pub fn wait_for_failover(&self, from: u16) -> Result<&Instance> {
        until("a failover", || self.primary().is_some_and(|server| server.port() != from))?;
        self.primary().ok_or_else(|| Error::new("the primary has gone again"))
    }
}

/// A bounded wait for something to be so.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let started = Instant::now();
    while !is_so() {
        if started.elapsed() > Duration::from_secs(60) {
            return Err(Error::new(format!("not within a minute: {what}")));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A port that is given to a server later.
pub(super) fn reserve() -> (u16, SocketAddr) {
    let port = free_port();
    (port, (Ipv4Addr::LOCALHOST, port).into())
}
