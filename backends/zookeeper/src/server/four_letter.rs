//! The version, the role and the tick that a server reports, by four-letter words.
//!
//! The client library does not offer them, so dlock sends the words on connections of its own. Servers answer `srvr` by
//! default, and `conf` if `4lw.commands.whitelist` has it. A word without an answer leaves its value unknown.

use std::time::Duration;

use dlock_contract::Health;
use dlock_store::Clock;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The role of a server that has lost its majority.
pub(crate) const READ_ONLY: &str = "read-only";

/// The time that all servers together have for an answer.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);
/// The longest answer that is read, in bytes; a `srvr` answer is shorter.
const MAX_ANSWER_BYTES: u64 = 4096;

/// The first usable answer of these servers; an empty one if there is none. All are asked at once, since some may be silent.
pub(crate) async fn health(hosts: &str, clock: &Clock) -> Health {
    first(hosts, clock, "srvr", read).await.unwrap_or_default()
}

/// The tick of these servers, which must all have the same. `None`: no server reports it.
pub(crate) async fn tick(hosts: &str, clock: &Clock) -> Option<Duration> {
    first(hosts, clock, "conf", |answer| {
        let tick = answer.lines().find_map(|line| line.strip_prefix("tickTime="))?;
        tick.trim().parse().ok().map(Duration::from_millis)
    })
    .await
}

/// The first of the servers' answers to this word that can be read.
async fn first<T>(hosts: &str, clock: &Clock, word: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    let asking = async {
        let mut answers: FuturesUnordered<_> = hosts.split(',').map(|host| ask(host, word)).collect();
        while let Some(answer) = answers.next().await {
            if let Some(read) = answer.ok().and_then(|answer| read(&answer)) {
                return Some(read);
            }
        }
        None
    };
    clock.timeout_at(clock.now().after(ANSWER_LIMIT), asking).await.flatten()
}

async fn ask(host: &str, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(host).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer).await?;
    Ok(answer)
}

fn read(answer: &str) -> Option<Health> {
    let value_of = |begin: &str| answer.lines().find_map(|line| line.strip_prefix(begin));
    let health =
        Health::new().version(format!("ZooKeeper {}", value_of("Zookeeper version: ")?.split(['-', ',']).next()?));
    Some(match value_of("Mode: ")? {
        // A single server has no role.
        "standalone" => health.count("members", 1),
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
        assert_eq!(read(&alone), Some(Health::new().version("ZooKeeper 3.9.2").count("members", 1)));
        for other in [
            "srvr is not executed because it is not in the whitelist.\n",
            "This ZooKeeper instance is not currently serving requests\n",
            "",
        ] {
            assert_eq!(read(other), None);
        }
    }
}
