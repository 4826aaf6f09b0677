//! PostgreSQL.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::{fs, io};

use rustix::process::Signal;

use super::postgres_wire::{self, ACCOUNT, DATABASE};
use super::sql_wire::{output_of, run_once};
use super::{Certificates, Recipe, data_folder};
use crate::Result;
use crate::error::Context;
use crate::find::{Tree, find_program, missing};
use crate::nobody;

/// A PostgreSQL with the account `dlock`, who may do everything and needs no password, and the database `postgres`. Any
/// other account must tell its password (SCRAM).
#[derive(Clone, Default)]
pub struct Postgres {
    /// Which one.
    pub release: PostgresRelease,
    /// More options, as on the command line.
    pub extra: Vec<String>,
    /// Lines of `pg_hba.conf`, for accounts that log in otherwise.
    pub hba: Vec<String>,
    /// It also speaks TLS, with these; a line in `hba` may ask for the client's.
    pub certificates: Option<Arc<Certificates>>,
}

/// A release of PostgreSQL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostgresRelease {
    /// Debian's.
    #[default]
    Fifteen,
    /// The one that is packed for tests in Java.
    Eighteen,
}

impl PostgresRelease {
    fn program(self, name: &str) -> Result<PathBuf> {
        match self {
            // Debian keeps the programs of each version in a folder of their own.
            Self::Fifteen => {
                let debian = Path::new("/usr/lib/postgresql/15/bin").join(name);
                debian.is_file().then_some(debian).or_else(|| find_program(name)).ok_or_else(|| missing("PostgreSQL"))
            }
            Self::Eighteen => {
                let unpacked = Tree::for_all("postgres18").root().join("bin").join(name);
                unpacked.is_file().then_some(unpacked).ok_or_else(|| missing("PostgreSQL 18"))
            }
        }
    }
}

impl Recipe for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn refuses_root(&self) -> bool {
        true
    }

    fn prepare(&self, folder: &Path) -> Result<()> {
        let initdb = self.release.program("initdb")?;
        let version = output_of(Command::new(&initdb).arg("--version")).context("initdb --version")?;
        data_folder::copy_of(&version, folder, |draft| {
            nobody::give(draft).context("the owner of the folder")?;
            let mut command = Command::new(initdb);
            // It would sync files that no server has yet. The server itself syncs what it answers for.
            command.args(["--no-sync", "--auth=trust", "--locale=C", "--encoding=UTF8"]);
            command.arg(format!("--username={ACCOUNT}")).arg(data_option(draft)).current_dir(draft);
            nobody::run_as(&mut command);
            run_once(command).context("initdb")
        })?;
        // The first line that fits an account decides.
        let mut hba: String = self.hba.iter().map(|line| format!("{line}\n")).collect();
        for (way, from) in [("local", ""), ("host", "127.0.0.1/32")] {
            hba += &format!("{way} all {ACCOUNT} {from} trust\n{way} all all {from} scram-sha-256\n");
        }
        fs::write(folder.join("data/pg_hba.conf"), hba).context("pg_hba.conf")?;
        nobody::give_all(&folder.join("data")).context("the owner of the data")?;
        // Copies, since it takes only a key that is its own.
        if let Some(certificates) = &self.certificates {
            for name in CERTIFICATES {
                let copy = folder.join(name);
                fs::copy(certificates.file(name), &copy).context(name)?;
                nobody::give(&copy).context(name)?;
            }
        }
        Ok(())
    }

    /// With SIGTERM it waits until its clients leave.
    fn end_signal(&self) -> Signal {
        Signal::INT
    }

    fn eased(&self) -> &'static [&'static str] {
        &["--max_connections=", "--dynamic_shared_memory_type="]
    }

    fn command(&self, folder: &Path, port: u16) -> Result<Command> {
        let mut command = Command::new(self.release.program("postgres")?);
        command.arg(data_option(folder)).current_dir(folder);
        command.arg(format!("--port={port}")).arg("--listen_addresses=127.0.0.1");
        command.arg(format!("--unix_socket_directories={}", folder.display()));
        // Twice the default, for tests in which each hold has a connection. The suite runs over a server as it is shipped too.
        command.arg("--max_connections=200");
        // In its folder, which is removed; elsewhere a killed server's would stay.
        command.arg("--dynamic_shared_memory_type=mmap");
        if self.certificates.is_some() {
            let [cert, key, ca] = CERTIFICATES.map(|name| folder.join(name).display().to_string());
            command.arg("--ssl=on").arg(format!("--ssl_cert_file={cert}"));
            command.args([format!("--ssl_key_file={key}"), format!("--ssl_ca_file={ca}")]);
        }
        command.args(&self.extra);
        Ok(command)
    }

    fn ask(&self, addr: SocketAddr, request: &str) -> io::Result<String> {
        postgres_wire::ask(addr, request)
    }

    fn check(&self, addr: SocketAddr) -> io::Result<()> {
        postgres_wire::ask(addr, "SELECT 1").map(drop)
    }

    fn url(&self, port: u16) -> String {
        url(port)
    }
}

/// Of the server and of the authority that signs those of clients.
const CERTIFICATES: [&str; 3] = ["server.pem", "server.key", "ca.pem"];

pub(super) fn url(port: u16) -> String {
    format!("postgres://{ACCOUNT}@127.0.0.1:{port}/{DATABASE}")
}

fn data_option(folder: &Path) -> String {
    format!("-D{}", folder.join("data").display())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Postgres;
    use crate::servers::Instance;
    use crate::servers::postgres_wire::Wire;

    /// Each session is a process of its own.
    #[test]
    fn a_session_stands_still_and_ends_with_its_server() {
        let server = Instance::start(Postgres::default()).unwrap();
        let mut session = Wire::open(server.addr()).unwrap();
        let process = session.query("SELECT pg_backend_pid()").unwrap();
        server.pause().unwrap();
        assert!(session.query("SELECT 1").is_err());
        server.resume().unwrap();
        let mut session = Wire::open(server.addr()).unwrap();
        assert_eq!(session.query("SELECT 1").unwrap(), "1");
        server.pause().unwrap();
        server.kill9().unwrap();
        assert!(session.query("SELECT 1").is_err());
        let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
    }
}
