//! An etcd that also speaks TLS.

use super::{Certificates, Etcd, Instance, free_port};
use crate::Result;

/// The server, and the certificates of both sides. It wants one from its clients.
pub struct EtcdTls {
    /// Its port speaks no TLS.
    pub server: Instance,
    /// This one does.
    pub port: u16,
    certificates: Certificates,
}

impl EtcdTls {
    /// Makes the certificates and starts the server.
    pub fn start() -> Result<Self> {
        let (certificates, plain, port) = (Certificates::make()?, free_port(), free_port());
        let urls = format!("http://127.0.0.1:{plain},https://127.0.0.1:{port}");
        let mut extra = vec!["--listen-client-urls".to_owned(), urls, "--client-cert-auth".to_owned()];
        for (option, file) in [("cert", "server.pem"), ("key", "server.key"), ("trusted-ca", "ca.pem")] {
            extra.extend([format!("--{option}-file"), certificates.file(file)]);
        }
        let server = Instance::start_on(Etcd { extra, ..Etcd::default() }, plain)?;
        Ok(Self { server, port, certificates })
    }

    /// See [`Certificates::file`].
    pub fn file(&self, name: &str) -> String {
        self.certificates.file(name)
    }

    /// The address as clients write it.
    pub fn url(&self) -> String {
        format!("etcd://localhost:{}?tls=verify&{}", self.port, self.certificates.query())
    }
}
