//! Certificates of an authority of one's own, for servers that speak TLS and for their clients.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::error::Context;
use crate::find::{find_program, missing};
use crate::{Error, Result};

/// Those of both sides; servers want one from their clients.
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes them.
    pub fn make() -> Result<Self> {
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
        Ok(Self { folder })
    }

    /// One of the files: `ca.pem`, `client.pem`, `client.key`, or `stranger.pem` of another authority.
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The options of a Redis that speaks TLS on this port, beside the plain one.
    pub(super) fn settings(&self, port: u16) -> [(&'static str, String); 4] {
        [
            ("tls-port", port.to_string()),
            ("tls-cert-file", self.file("server.pem")),
            ("tls-key-file", self.file("server.key")),
            ("tls-ca-cert-file", self.file("ca.pem")),
        ]
    }

    /// The same, as on the command line.
    pub(super) fn options(&self, port: u16) -> impl Iterator<Item = String> + use<> {
        self.settings(port).into_iter().flat_map(|(name, value)| [format!("--{name}"), value])
    }

    /// The client's side, as a URL says it.
    pub(super) fn query(&self) -> String {
        let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| self.file(name));
        format!("ca={ca}&cert={cert}&key={key}")
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
