//! MySQL (Oracle's; MariaDB has a recipe of its own).

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use super::sql_wire::{self, TEMPORARY, data_option};
use super::{Recipe, data_folder};
use crate::Result;
use crate::error::Context;
use crate::find::{Tree, find_program, missing, user_option};

/// A MySQL with a database `test` and a `root` without a password.
#[derive(Clone, Debug, Default)]
pub struct MySql {
    /// More options, as on the command line.
    pub extra: Vec<String>,
}

impl Recipe for MySql {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn prepare(&self, folder: &Path) -> Result<()> {
        let (version, mut command) = server()?;
        data_folder::copy_of(&format!("mysql {version}"), folder, |draft| {
            command.args(["--initialize-insecure", REDO_LOG]).arg(data_option(draft)).env(TEMPORARY, draft);
            sql_wire::run_once(command).context("mysqld --initialize-insecure")
        })?;
        // The server's identity, which no two may share; it makes a new one.
        fs::remove_file(folder.join("data/auto.cnf")).context("auto.cnf")
    }

    fn eased(&self) -> &'static [&'static str] {
        &["--performance-schema=", "--skip-log-bin", "--innodb-buffer-pool-size=", "--innodb-redo-log-capacity="]
    }

    fn command(&self, folder: &Path, port: u16) -> Result<Command> {
        let (_, mut command) = server()?;
        command.arg(data_option(folder));
        command.args([format!("--port={port}"), format!("--socket={}", folder.join("s.sock").display())]);
        command.arg(format!("--pid-file={}", folder.join("m.pid").display()));
        // By default it also counts what it does, writes each change to a second log, and takes 128 MB of memory. Many servers run
        // beside each other, and that takes memory and time of each. The test of the server's limits runs with the first two, and
        // the suite runs over a server as it is shipped.
        // No --skip-name-resolve: there is only root@localhost, and 127.0.0.1 would be refused.
        command.args(["--bind-address=127.0.0.1", "--mysqlx=OFF", "--performance-schema=OFF", "--skip-log-bin"]);
        command.args(["--innodb-buffer-pool-size=32M", REDO_LOG]).args(&self.extra).env(TEMPORARY, folder);
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
const REDO_LOG: &str = "--innodb-redo-log-capacity=16M";

/// The version, and the program with the options that every call needs.
fn server() -> Result<(String, Command)> {
    let tree = Tree::named("mysql");
    let (version, mut command) = if let Some(version) = tree.version() {
        let usr = tree.root().join("usr");
        let mut command = tree.command("usr/sbin/mysqld");
        command.args(["--no-defaults".to_owned(), format!("--basedir={}", usr.display())]);
        command.arg(format!("--lc-messages-dir={}", usr.join("share/mysql").display()));
        command.arg(format!("--plugin-dir={}", usr.join("lib/mysql/plugin").display()));
        (version, command)
    } else {
        let program = find_program("mysqld").ok_or_else(|| missing("MySQL"))?;
        let output = Command::new(&program).arg("--version").output().context("mysqld --version")?;
        let version = String::from_utf8_lossy(&output.stdout).into_owned();
        // MariaDB installs a program of this name too.
        if version.contains("MariaDB") {
            return Err(missing("MySQL"));
        }
        let mut command = Command::new(program);
        command.arg("--no-defaults");
        (version, command)
    };
    // Without this it wants a folder that only an installed package has.
    command.arg("--secure-file-priv=NULL").args(user_option());
    Ok((version, command))
}
