//! Why TLS with the servers fails. The client library says only that no server has given a session.

use std::io;
use std::sync::Arc;

use dlock_contract::{Error, Tls};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The failure of the first server with which TLS fails; `None` if it fails with none of those that can be reached. All are
/// asked at once, since some may be silent.
pub(crate) async fn failure(hosts: &str, tls: &Tls) -> Option<Error> {
    let connector = TlsConnector::from(Arc::new(config(tls)?));
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

/// As the client library makes it of the same files.
fn config(tls: &Tls) -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(tls.ca.as_deref()?).flatten());
    let builder = ClientConfig::builder().with_root_certificates(roots);
    match &tls.identity {
        Some((cert, key)) => {
            let chain = CertificateDer::pem_slice_iter(cert).flatten().collect();
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key).ok()?).ok()
        }
        None => Some(builder.with_no_client_auth()),
    }
}
