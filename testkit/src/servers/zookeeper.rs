//! ZooKeeper: one node, or several that agree.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Instance, Recipe, free_port};
use crate::Result;
use crate::error::Context;
use crate::find::{find_program, missing};

/// The server's own archive, which names most of what it needs; what it needs for TLS; and an archive that writes no log.
const CLASSES: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar:/usr/share/java/slf4j-nop.jar";

/// The file with the account, in the server's folder.
const ACCOUNTS: &str = "accounts.conf";

/// A ZooKeeper node; its data survives a kill. A tick has 200 ms, a session 0.4 s to 10 min.
#[derive(Clone, Debug, Default)]
pub struct ZooKeeper {
    /// More lines of the configuration.
    pub settings: Vec<String>,
    /// More options of the Java machine, such as `-Dname=value`.
    pub java: Vec<String>,
    /// An account that clients must have, a user and a password, by SASL with DIGEST-MD5.
    pub account: Option<(&'static str, &'static str)>,
    /// The number of this node, and the ports of all nodes: to follow the leader, and to elect it.
    pub ensemble: Option<(usize, Vec<(u16, u16)>)>,
}

impl ZooKeeper {
    /// The recipes of this many nodes that agree with each other.
    pub fn ensemble(nodes: usize) -> Vec<Self> {
        let ports: Vec<_> = (0..nodes).map(|_| (free_port(), free_port())).collect();
        (1..=nodes).map(|id| Self { ensemble: Some((id, ports.clone())), ..Self::default() }).collect()
    }

    /// Which of the running nodes leads.
    pub fn leader(nodes: &[Instance]) -> Option<usize> {
        nodes.iter().position(|node| node.ask("srvr").is_ok_and(|answer| answer.contains("Mode: leader")))
    }
}

impl Recipe for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn prepare(&self, folder: &Path) -> Result<()> {
        let data = folder.join("data");
        fs::create_dir_all(&data).context("the folder for the data")?;
        if let Some((user, password)) = self.account {
            let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
            let text = format!("Server {{ {module} required user_{user}=\"{password}\"; }};");
            fs::write(folder.join(ACCOUNTS), text).context("the accounts")?;
        }
        match &self.ensemble {
            Some((id, _)) => fs::write(data.join("myid"), id.to_string()).context("the number of the node"),
            None => Ok(()),
        }
    }

    fn command(&self, folder: &Path, port: u16) -> Result<Command> {
        let java = find_program("java").ok_or_else(|| missing("java"))?;
        if !Path::new("/usr/share/java/zookeeper.jar").is_file() {
            return Err(missing("zookeeper"));
        }
        // By default the shortest session is of 4 s, a host has 60 connections, and `srvr` is the one command. Short sessions make
        // short tests, all tests come from one host, and they ask for more. One test of the store runs with the defaults.
        let mut lines = vec![
            "tickTime=200".to_owned(),
            "minSessionTimeout=400".to_owned(),
            "maxSessionTimeout=600000".to_owned(),
            format!("dataDir={}", folder.join("data").display()),
            format!("clientPort={port}"),
            "clientPortAddress=127.0.0.1".to_owned(),
            "admin.enableServer=false".to_owned(),
            "4lw.commands.whitelist=*".to_owned(),
            "maxClientCnxns=0".to_owned(),
        ];
        if let Some((_, nodes)) = &self.ensemble {
            lines.extend(["initLimit=25".to_owned(), "syncLimit=10".to_owned()]);
            let node =
                |(at, (follow, elect)): (usize, &(u16, u16))| format!("server.{}=127.0.0.1:{follow}:{elect}", at + 1);
            lines.extend(nodes.iter().enumerate().map(node));
        }
        if self.account.is_some() {
            lines.push("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider".to_owned());
            lines.push("sessionRequireClientSASLAuth=true".to_owned());
        }
        lines.extend(self.settings.iter().cloned());
        let file = folder.join("zoo.cfg");
        fs::write(&file, lines.join("\n")).context("the configuration")?;
        let mut command = Command::new(java);
        command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        if self.account.is_some() {
            command.arg(format!("-Djava.security.auth.login.config={}", folder.join(ACCOUNTS).display()));
        }
        command.arg("-Dzookeeper.jmx.log4j.disable=true").args(&self.java).args(["-cp", CLASSES]);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(file);
        Ok(command)
    }

    fn ask(&self, addr: SocketAddr, request: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&addr, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(request.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    }

    fn check(&self, addr: SocketAddr) -> io::Result<()> {
        // A node that has no leader says so, and has no mode.
        let answer = self.ask(addr, "srvr")?;
        if answer.contains("Mode: ") { Ok(()) } else { Err(io::Error::other(answer)) }
    }

    fn url(&self, port: u16) -> String {
        format!("zk://127.0.0.1:{port}")
    }
}
