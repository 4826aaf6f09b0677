//! MariaDB.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::sql_wire::{self, TEMPORARY, data_option};
use super::{Recipe, data_folder};
use crate::Result;
use crate::error::Context;
use crate::find::{find_program, missing, user_option};

/// A MariaDB with a database `test` and a `root` without a password.
#[derive(Clone, Debug, Default)]
pub struct MariaDb {
    /// More options, as on the command line.
    pub extra: Vec<String>,
}

impl Recipe for MariaDb {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn prepare(&self, folder: &Path) -> Result<()> {
        let version = sql_wire::output_of(Command::new(server()?).arg("--version")).context("mariadbd --version")?;
        data_folder::copy_of(&version, folder, |draft| {
            let install = find_program("mariadb-install-db").ok_or_else(|| missing("mariadb-server"))?;
            let mut command = Command::new(install);
            command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", REDO_LOG]);
            command.arg(data_option(draft)).args(user_option()).env(TEMPORARY, draft);
            sql_wire::run_once(command).context("mariadb-install-db")
        })
    }

    fn eased(&self) -> &'static [&'static str] {
        &["--innodb-log-file-size=", "--skip-name-resolve", "--innodb-buffer-pool-size="]
    }

    fn command(&self, folder: &Path, port: u16) -> Result<Command> {
        let mut command = Command::new(server()?);
        command.args(["--no-defaults", REDO_LOG]).arg(data_option(folder)).args(user_option()).env(TEMPORARY, folder);
        // By default it takes 128 MB of memory, and looks for the name of each client. Many servers run beside each other.
        // The suite runs over one as it is shipped.
        command.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-buffer-pool-size=32M"]);
        command.args([format!("--port={port}"), format!("--socket={}", folder.join("s.sock").display())]);
        command.arg(format!("--pid-file={}", folder.join("m.pid").display())).args(&self.extra);
        Ok(command)
    }

    fn ask(&self, addr: SocketAddr, request: &str) -> io::Result<String> {
        sql_wire::ask(addr, request)
    }

    fn check(&self, addr: SocketAddr) -> io::Result<()> {
        sql_wire::ask(addr, "CREATE DATABASE IF NOT EXISTS test").map(drop)
    }

    fn url(&self, port: u16) -> String {
        format!("mysql://root@127.0.0.1:{port}/test")
    }
}

/// The default would write 100 MB per instance. The suite runs over a server as it is shipped too.
const REDO_LOG: &str = "--innodb-log-file-size=48M";

fn server() -> Result<PathBuf> {
    find_program("mariadbd").ok_or_else(|| missing("mariadb-server"))
}
