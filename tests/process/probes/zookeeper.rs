//! ZooKeeper: the ephemeral nodes of the namespace, and the sessions, by the server's own word.

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Probe;

pub(crate) struct ZooKeeper {
    pub(crate) url: String,
    pub(crate) namespace: String,
}

impl ZooKeeper {
    async fn dump(&self) -> Vec<String> {
        let mut stream = TcpStream::connect(self.url.strip_prefix("zk://").unwrap()).await.unwrap();
        stream.write_all(b"dump").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.lines().map(|line| line.trim().to_owned()).collect()
    }
}

impl Probe for ZooKeeper {
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let prefix = format!("/dlock/{}/", self.namespace);
            self.dump().await.into_iter().filter(|line| line.starts_with(&prefix)).collect()
        })
    }

    /// All sessions of the server, so it must be the trial's own.
    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let is_session = |line: &String| line.starts_with("0x") && !line.contains(':');
            self.dump().await.into_iter().filter(is_session).map(|session| format!("session {session}")).collect()
        })
    }
}
