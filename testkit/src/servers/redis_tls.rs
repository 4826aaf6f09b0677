//! A Redis that also speaks TLS, with certificates of an authority of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::find::{find_program, missing};
use super::{Instance, Redis, free_port};
use crate::error::Context;
use crate::{Error, Result};

/// The server, and the certificates of both sides. It wants one from its clients.
pub struct RedisTls {
    /// Its port speaks no TLS.
    pub server: Instance,
    /// This one does.
    pub port: u16,
    folder: TempDir,
}

impl RedisTls {
    /// Makes the certificates and starts the server.
    pub fn start() -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for certificates")?;
        let at = folder.path();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        for authority in ["ca", "stranger"] {
            let files = format!("-keyout {authority}.key -out {authority}.pem");
            openssl(at, &format!("req -x509 {key} -days 2 -subj /CN={authority} {files}"))?;
        }
        fs::write(at.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").context("the names")?;
        for name in ["server", "client"] {
            openssl(at, &format!("req {key} -subj /CN={name} -keyout {name}.key -out {name}.csr"))?;
            let signed = format!("-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out {name}.pem");
            openssl(at, &format!("x509 -req -in {name}.csr {signed}"))?;
        }
        let port = free_port();
        let (tls, file) = (port.to_string(), |name: &str| at.join(name).display().to_string());
        let (cert, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
        let options = ["--tls-port", &tls, "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
        Ok(Self { server: Instance::start(Redis::with(&options))?, port, folder })
    }

    /// A file of the folder: `ca.pem`, `client.pem`, `client.key`, or `stranger.pem` of another authority.
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The address as clients write it, through another port if a proxy stands in front.
    pub fn url_at(&self, port: u16) -> String {
        let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| self.file(name));
        format!("rediss://127.0.0.1:{port}/?ca={ca}&cert={cert}&key={key}")
    }
}

fn openssl(folder: &Path, arguments: &str) -> Result<()> {
    let program = find_program("openssl").ok_or_else(|| missing("openssl"))?;
    let mut command = Command::new(program);
    command.args(arguments.split(' ')).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status().context("openssl")?.success() {
        true => Ok(()),
        false => Err(Error::new(format!("openssl {arguments} failed"))),
    }
}
