//! Why TLS with the servers fails. The client library says only that no server has given a session.

use std::io;

use dlock_contract::Error;
use dlock_store::Tls;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The failure of the first server with which TLS fails; `None` if it fails with none of those that can be reached. All are
/// asked at once, since some may be silent.
pub(crate) async fn failure(hosts: &str, tls: &Tls) -> Option<Error> {
    let connector = TlsConnector::from(tls.client_config().ok()?);
    let mut answers: FuturesUnordered<_> = hosts.split(',').map(|host| shake_hands(&connector, host)).collect();
    while let Some(answer) = answers.next().await {
        if let Err(error) = answer
            && error.kind() == io::ErrorKind::InvalidData
        {
            return Some(Error::outage(format!("TLS with ZooKeeper failed: {error}")));
        }
    }
    None
}

async fn shake_hands(connector: &TlsConnector, host: &str) -> io::Result<()> {
    let (name, _) = host.rsplit_once(':').unwrap_or((host, ""));
    let name =
        ServerName::try_from(name.trim_matches(['[', ']']).to_owned()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut stream = connector.connect(name, TcpStream::connect(host).await?).await?;
    // A server refuses the certificate of its client only after the client's part of the handshake.
    stream.write_all(b"srvr").await?;
    stream.read(&mut [0]).await.map(drop)
}
