//! The version and role that a server tells.
//!
//! The client library does not tell them, so the word `srvr` is sent on a connection of its own. It is the one word of four
//! letters that servers answer by default. Where it is switched off, nothing is known.

use std::time::Duration;

use dlock_contract::{Clock, Health};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The part of a server that has lost its majority.
pub(crate) const READ_ONLY: &str = "read-only";

/// How long all servers together have for an answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// Longer than any answer that is understood.
const LONGEST: u64 = 4096;

/// The answer of the first of these servers that answers; nothing if none does.
pub(crate) async fn health(hosts: &str, clock: &Clock) -> Health {
    let asked = async {
        for host in hosts.split(',') {
            if let Some(said) = ask(host).await.ok().and_then(|answer| read(&answer)) {
                return said;
            }
        }
        Health::new()
    };
    clock.timeout_at(clock.now().after(PATIENCE), asked).await.unwrap_or_default()
}

async fn ask(host: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(host).await?;
    stream.write_all(b"srvr").await?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).await?;
    Ok(answer)
}

fn read(answer: &str) -> Option<Health> {
    let line = |begin: &str| answer.lines().find_map(|line| line.strip_prefix(begin));
    let health = Health::new().version(format!("ZooKeeper {}", line("Zookeeper version: ")?.split(['-', ',']).next()?));
    Some(match line("Mode: ")? {
        // It plays all parts.
        "standalone" => health,
        role => health.role(role),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let of = |version: &str, mode: &str| {
            format!(
                "Zookeeper version: {version}\nLatency min/avg/max: 0/0.0/0\nZxid: 0x1\nMode: {mode}\nNode count: 5\n"
            )
        };
        let new = of("3.8.0-${mvngit.commit.id}, built on 2022-02-25 08:49 UTC", "follower");
        assert_eq!(read(&new), Some(Health::new().version("ZooKeeper 3.8.0").role("follower")));
        let alone = of("3.9.2, built on 2024-02-12", "standalone");
        assert_eq!(read(&of("3.9.2", READ_ONLY)).and_then(|health| health.role), Some("read-only".into()));
        assert_eq!(read(&alone), Some(Health::new().version("ZooKeeper 3.9.2")));
        for other in [
            "srvr is not executed because it is not in the whitelist.\n",
            "This ZooKeeper instance is not currently serving requests\n",
            "",
        ] {
            assert_eq!(read(other), None);
        }
    }
}
