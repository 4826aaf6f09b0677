//! Databases of the cases' own, on servers of the test kit.

use dlock_testkit::servers::{Instance, MariaDb, MySql, WallClock, on_small_disk, shared};
use dlock_testkit::{Result, wait_until};
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

    /// A server with a wall clock of its own.
    pub(crate) fn start_with(self, clock: &WallClock) -> Result<Instance> {
        match self {
            Self::MariaDb => Instance::start(clock.of(MariaDb::default())),
            Self::MySql => Instance::start(clock.of(MySql::default())),
        }
    }

    /// A server whose database `test` is on a small disk.
    pub(crate) fn start_on_small_disk(self) -> Result<Instance> {
        let server = match self {
            Self::MariaDb => Instance::start(on_small_disk(MariaDb::default(), "data/test", 8)),
            Self::MySql => Instance::start(on_small_disk(MySql::default(), "data/test", 8)),
        }?;
        // The first start makes the database.
        server.restart()?;
        Ok(server)
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

    /// The database that the server has from its start.
    pub(crate) fn test_of(server: &Instance) -> Self {
        Self { name: "test".into(), server: server.url().parse().unwrap() }
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
        self.settings().connect().await.unwrap()
    }

    /// As those of somebody's pool.
    pub(crate) fn settings(&self) -> MySqlConnectOptions {
        self.server.clone().database(&self.name)
    }

    /// A connection that is in no database.
    pub(crate) async fn outside(&self) -> MySqlConnection {
        let url = format!("mysql://root@{}:{}", self.server.get_host(), self.server.get_port());
        url.parse::<MySqlConnectOptions>().unwrap().connect().await.unwrap()
    }

    /// Waits until one statement waits for a lock of this database.
    pub(crate) async fn until_one_waits(&self) {
        self.until_wait(1).await;
    }

    /// The same for several.
    pub(crate) async fn until_wait(&self, count: usize) {
        let wait = async || self.running("GET_LOCK(").await.len() == count;
        wait_until("the statements wait", wait).await.unwrap();
    }

    pub(crate) async fn kill(&self, session: u64) {
        self.connect().await.execute(AssertSqlSafe(format!("KILL {session}"))).await.unwrap();
    }
}
