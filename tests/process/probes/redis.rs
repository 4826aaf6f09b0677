//! Redis, one server or several: SCAN and CLIENT LIST.

use futures::future::BoxFuture;
use redis::aio::MultiplexedConnection;

use super::{Probe, beginning};

pub(crate) struct Redis {
    pub(crate) urls: Vec<String>,
    pub(crate) namespace: String,
}

/// The single servers behind a URL of Redlock.
pub(super) fn nodes(url: &str) -> Vec<String> {
    let hosts = url.strip_prefix("redlock://").unwrap().split('/').next().unwrap();
    hosts.split(',').map(|host| format!("redis://{host}/")).collect()
}

async fn connect(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

impl Probe for Redis {
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut found = Vec::new();
            // The resource is in the same server, in other letters than the locks.
            let names = beginning(&self.namespace).replacen(':', ":*", 1) + "*";
            for url in &self.urls {
                let mut connection = connect(url).await;
                let mut cursor = 0_u64;
                loop {
                    let mut scan = redis::cmd("SCAN");
                    scan.arg(cursor).arg("MATCH").arg(&names).arg("COUNT").arg(1000);
                    let (next, keys): (u64, Vec<String>) = scan.query_async(&mut connection).await.unwrap();
                    found.extend(keys);
                    if next == 0 {
                        break;
                    }
                    cursor = next;
                }
            }
            found
        })
    }

    /// All clients of the servers, so they must be the trial's own.
    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut clients = Vec::new();
            for url in &self.urls {
                let mut connection = connect(url).await;
                let me: u64 = redis::cmd("CLIENT").arg("ID").query_async(&mut connection).await.unwrap();
                let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await.unwrap();
                let others = list.lines().filter(|line| !line.starts_with(&format!("id={me} ")));
                let kind = |line: &str| if line.contains(" sub=0 ") { "connection" } else { "subscriber" };
                clients.extend(others.map(|line| format!("{} {line}", kind(line))));
            }
            clients
        })
    }
}
