//! A Redis that also speaks TLS.

use super::{Certificates, Instance, Redis, free_port};
use crate::Result;

/// The server, and the certificates of both sides. It wants one from its clients.
pub struct RedisTls {
    /// Its port speaks no TLS.
    pub server: Instance,
    /// The port that speaks TLS.
    pub port: u16,
    certificates: Certificates,
}

impl RedisTls {
    /// Makes the certificates and starts the server.
    pub fn start() -> Result<Self> {
        let (certificates, port) = (Certificates::make()?, free_port());
        let server = Instance::start(Redis { extra: certificates.options(port).collect(), ..Redis::default() })?;
        Ok(Self { server, port, certificates })
    }

    /// See [`Certificates::file`].
    pub fn file(&self, name: &str) -> String {
        self.certificates.file(name)
    }

    /// The address as clients write it, through another port if a proxy stands in front.
    pub fn url_at(&self, port: u16) -> String {
        format!("rediss://127.0.0.1:{port}/?{}", self.certificates.query())
    }
}
