//! Redis: SCAN and CLIENT LIST.

use futures::future::BoxFuture;
use redis::aio::MultiplexedConnection;

use super::Probe;

pub(crate) struct Redis {
    pub(crate) url: String,
    pub(crate) namespace: String,
}

impl Redis {
    async fn connect(&self) -> MultiplexedConnection {
        redis::Client::open(self.url.as_str()).unwrap().get_multiplexed_async_connection().await.unwrap()
    }
}

impl Probe for Redis {
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut connection = self.connect().await;
            let (mut cursor, mut found) = (0_u64, Vec::new());
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(format!("dl1:*{}*", self.namespace)).arg("COUNT").arg(1000);
                let (next, keys): (u64, Vec<String>) = scan.query_async(&mut connection).await.unwrap();
                found.extend(keys);
                if next == 0 {
                    return found;
                }
                cursor = next;
            }
        })
    }

    /// All clients of the server, so it must be the trial's own.
    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut connection = self.connect().await;
            let me: u64 = redis::cmd("CLIENT").arg("ID").query_async(&mut connection).await.unwrap();
            let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await.unwrap();
            let others = list.lines().filter(|line| !line.starts_with(&format!("id={me} ")));
            let kind = |line: &str| if line.contains(" sub=0 ") { "connection" } else { "subscriber" };
            others.map(|line| format!("{} {line}", kind(line))).collect()
        })
    }
}
