//! Databases of the cases' own, on servers of the test kit.

use dlock_testkit::Result;
use dlock_testkit::servers::{Instance, MariaDb, MySql, shared};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    MariaDb,
    MySql,
}

impl Kind {
    /// The URL of the server that most cases share.
    pub(crate) fn shared(self) -> Result<String> {
        match self {
            Self::MariaDb => shared().mariadb(),
            Self::MySql => shared().mysql(),
        }
    }

    /// A server that the case may disturb.
    pub(crate) fn start(self) -> Result<Instance> {
        match self {
            Self::MariaDb => Instance::start(MariaDb::default()),
            Self::MySql => Instance::start(MySql::default()),
        }
    }
}

/// A database of one case, and where it is.
pub(crate) struct Database {
    pub name: String,
    server: MySqlConnectOptions,
}

impl Database {
    /// A new one on the server with this URL.
    pub(crate) async fn create(url: &str, case: &str) -> Self {
        // A name has 64 characters at most, and a namespace too. A server from outside may have met the case before.
        let name = format!("{case:.50}_{:08x}", fastrand::u32(..));
        let server: MySqlConnectOptions = url.parse().unwrap();
        let mut root = server.connect().await.unwrap();
        root.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        root.close().await.unwrap();
        Self { name, server }
    }

    pub(crate) fn url(&self) -> String {
        self.url_of("root")
    }

    /// The same for another account, as `name:password`.
    pub(crate) fn url_of(&self, account: &str) -> String {
        format!("mysql://{account}@{}:{}/{}", self.server.get_host(), self.server.get_port(), self.name)
    }

    pub(crate) fn addr(&self) -> std::net::SocketAddr {
        (std::net::Ipv4Addr::LOCALHOST, self.server.get_port()).into()
    }

    /// The same through another port of this host.
    pub(crate) fn url_at(&self, port: u16) -> String {
        format!("mysql://root@127.0.0.1:{port}/{}", self.name)
    }

    pub(crate) async fn connect(&self) -> MySqlConnection {
        self.server.clone().database(&self.name).connect().await.unwrap()
    }

    pub(crate) async fn kill(&self, session: u64) {
        self.connect().await.execute(AssertSqlSafe(format!("KILL {session}"))).await.unwrap();
    }
}
