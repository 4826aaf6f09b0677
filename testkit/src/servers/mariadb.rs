//! MariaDB.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::Recipe;
use super::sql_wire::{self, TEMPORARY};
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
        let install = find_program("mariadb-install-db").ok_or_else(|| missing("mariadb-server"))?;
        let mut command = Command::new(install);
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        command.arg(data_option(folder)).args(user_option()).env(TEMPORARY, folder);
        sql_wire::run_once(command).context("mariadb-install-db")
    }

    fn command(&self, folder: &Path, port: u16) -> Result<Command> {
        let mut command = Command::new(find_program("mariadbd").ok_or_else(|| missing("mariadb-server"))?);
        command.arg("--no-defaults").arg(data_option(folder)).args(user_option()).env(TEMPORARY, folder);
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

fn data_option(folder: &Path) -> String {
    format!("--datadir={}", folder.join("data").display())
}
