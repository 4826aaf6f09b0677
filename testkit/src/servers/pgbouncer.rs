//! PgBouncer, in front of a PostgreSQL.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use super::postgres_wire::{self, ACCOUNT};
use super::{Instance, Recipe, postgres};
use crate::Result;
use crate::error::Context;
use crate::find::{find_program, missing};
use crate::nobody;

/// A PgBouncer that gives each transaction any session of the server. It asks for no password.
#[derive(Clone, Debug)]
pub struct PgBouncer {
    server: u16,
    /// More lines of its settings; they overrule the recipe's.
    pub extra: Vec<String>,
}

impl PgBouncer {
    /// In front of this server.
    pub fn before(server: &Instance) -> Self {
        Self { server: server.port(), extra: Vec::new() }
    }
}

impl Recipe for PgBouncer {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn refuses_root(&self) -> bool {
        true
    }

    fn command(&self, folder: &Path, port: u16) -> Result<Command> {
        let program = find_program("pgbouncer").ok_or_else(|| missing("PgBouncer"))?;
        let settings = folder.join("pgbouncer.ini");
        let server = self.server;
        let mut lines = vec![
            "[databases]".to_owned(),
            format!("* = host=127.0.0.1 port={server} user={ACCOUNT}"),
            "[pgbouncer]".to_owned(),
            "listen_addr = 127.0.0.1".to_owned(),
            format!("listen_port = {port}"),
            "unix_socket_dir =".to_owned(),
            "auth_type = any".to_owned(),
            "pool_mode = transaction".to_owned(),
            // Clients send it before anything else, and would be refused.
            "ignore_startup_parameters = extra_float_digits".to_owned(),
        ];
        lines.extend_from_slice(&self.extra);
        fs::write(&settings, lines.join("\n") + "\n").context("the settings of PgBouncer")?;
        nobody::give(&settings).context("the settings of PgBouncer")?;
        let mut command = Command::new(program);
        command.arg(settings).current_dir(folder);
        Ok(command)
    }

    fn ask(&self, addr: SocketAddr, request: &str) -> io::Result<String> {
        postgres_wire::ask(addr, request)
    }

    fn check(&self, addr: SocketAddr) -> io::Result<()> {
        postgres_wire::ask(addr, "SELECT 1").map(drop)
    }

    fn url(&self, port: u16) -> String {
        postgres::url(port)
    }
}

#[cfg(test)]
mod tests {
    use super::PgBouncer;
    use crate::servers::postgres_wire::Wire;
    use crate::servers::{Instance, Postgres};

    #[test]
    fn clients_take_turns_with_a_session_of_the_server() {
        let server = Instance::start(Postgres::default()).unwrap();
        let extra = vec!["default_pool_size = 1".to_owned()];
        let bouncer = Instance::start(PgBouncer { extra, ..PgBouncer::before(&server) }).unwrap();
        let [mut one, mut two] = [(); 2].map(|()| Wire::open(bouncer.addr()).unwrap());
        let session = |wire: &mut Wire| wire.query("SELECT pg_backend_pid()").unwrap();
        assert_eq!(session(&mut one), session(&mut two));
    }
}
