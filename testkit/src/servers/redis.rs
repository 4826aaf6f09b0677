//! Redis.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Instance, Recipe, WallClock};
use crate::find::{Tree, find_program, missing};
use crate::{Result, block_until};

/// A Redis without persistence, unless asked for.
#[derive(Clone, Debug, Default)]
pub struct Redis {
    /// Write every change to disk before it is answered: what was acknowledged survives [`kill9`].
    ///
    /// [`kill9`]: super::Instance::kill9
    pub aof_always: bool,
    /// More options, as on the command line. A path without a `/` in front, as of a unix socket, is in the instance's
    /// [`folder`](super::Instance::folder).
    pub extra: Vec<String>,
    /// The make of the program.
    pub make: Make,
    /// A wall clock of its own.
    pub clock: Option<WallClock>,
}

/// Which of the servers that speak Redis' language.
#[derive(Clone, Copy, Debug, Default)]
pub enum Make {
    /// The system's Redis.
    #[default]
    Redis,
    /// A newer one, with `DELEX`.
    Redis8,
    /// Valkey, of a version with `DELIFEQ`.
    Valkey,
}

impl Redis {
    /// One with these options.
    pub fn with(options: &[&str]) -> Self {
        Self { extra: options.iter().map(ToString::to_string).collect(), ..Self::default() }
    }
}

impl Recipe for Redis {
    fn name(&self) -> &'static str {
        match self.make {
            Make::Redis => "redis",
            Make::Redis8 => "redis8",
            Make::Valkey => "valkey",
        }
    }

    fn eased(&self) -> &'static [&'static str] {
        &["--save", "--appendfsync"]
    }

    fn command(&self, folder: &Path, port: u16) -> Result<Command> {
        let mut command = match self.make {
            Make::Redis => Command::new(find_program("redis-server").ok_or_else(|| missing("redis-server"))?),
            Make::Redis8 => unpacked("redis8", "redis-server")?,
            Make::Valkey => unpacked("valkey", "valkey-server")?,
        };
        if let Some(clock) = &self.clock {
            clock.give_to(&mut command);
        }
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]).arg("--dir").arg(folder);
        // Without snapshots, so that a test alone decides what a restart forgets: by default the last minutes, here all.
        // `appendfsync` says how the file is written, if there is one.
        command.args(["--daemonize", "no", "--save", "", "--appendfsync", "always"]);
        command.args(["--appendonly", if self.aof_always { "yes" } else { "no" }]);
        command.args(&self.extra);
        Ok(command)
    }

    fn ask(&self, addr: SocketAddr, request: &str) -> io::Result<String> {
        ask(addr, request)
    }

    fn check(&self, addr: SocketAddr) -> io::Result<()> {
        // While it loads its data it answers with an error.
        match self.ask(addr, "PING") {
            Ok(reply) if reply == "PONG" => Ok(()),
            // It serves clients that know the password.
            Err(error) if error.to_string().starts_with("NOAUTH") => Ok(()),
            other => Err(io::Error::other(other?)),
        }
    }

    fn url(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}/")
    }
}

fn unpacked(tree: &str, program: &str) -> Result<Command> {
    let tree = Tree::named(tree);
    tree.version().ok_or_else(|| missing(program))?;
    Ok(tree.command(&format!("usr/bin/{program}")))
}

/// Independent servers, as many as Redlock usually has; each syncs every write, so it votes from its start on.
pub(super) fn five() -> Result<Vec<Instance>> {
    Instance::start_all([(); 5].map(|()| Redis { aof_always: true, ..Redis::default() }))
}

/// The address of several servers together, as Redlock's clients write it.
pub fn redlock_url(nodes: &[Instance]) -> String {
    let nodes: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
    format!("redlock://{}/", nodes.join(","))
}

/// Waits until these replicas follow, and their primary hears them.
pub fn wait_until_followed(primary: &Instance, replicas: &[Instance]) -> Result<()> {
    for replica in replicas {
        block_until("a replica follows", || {
            replica.ask("INFO replication").is_ok_and(|info| info.contains("master_link_status:up"))
        })?;
    }
    let all = replicas.len().to_string();
    block_until("a primary hears its replicas", || {
        primary.ask(&format!("WAIT {all} 100")).is_ok_and(|heard| heard == all)
    })
}

/// Only a server that stands still comes near it, also on a machine with a slow disk.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// One inline command over a fresh connection.
pub(super) fn ask(addr: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&addr, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(format!("{request}\r\n").as_bytes())?;
    read_reply(&mut BufReader::new(stream))
}

/// A reply as text; arrays one element per line, nothing as `(nil)`.
fn read_reply(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
    let length = || rest.parse::<i64>().map_err(io::Error::other);
    match kind {
        "+" | ":" => Ok(rest.to_owned()),
        "-" => Err(io::Error::other(rest.to_owned())),
        "$" if length()? < 0 => Ok("(nil)".to_owned()),
        "$" => {
            let mut text = vec![0; length()? as usize + 2];
            from.read_exact(&mut text)?;
            text.truncate(text.len() - 2);
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        "*" => Ok((0..length()?).map(|_| read_reply(from)).collect::<io::Result<Vec<_>>>()?.join("\n")),
        _ => Err(io::Error::other(format!("not a Redis reply: {line}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::read_reply;

    #[test]
    fn replies_of_redis_become_text() {
        let read = |text: &str| read_reply(&mut text.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(read("+PONG\r\n").unwrap(), "PONG");
        assert_eq!(read("$5\r\na\r\nbc\r\n").unwrap(), "a\r\nbc");
        assert_eq!(read("$-1\r\n").unwrap(), "(nil)");
        assert_eq!(read("*2\r\n:1\r\n$1\r\nx\r\n").unwrap(), "1\nx");
        assert_eq!(read("-ERR no\r\n").unwrap_err(), "ERR no");
        assert!(read("").is_err());
    }
}
