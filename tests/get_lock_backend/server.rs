//! A private server for these tests, until the test support crate has one.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    MariaDb,
    MySql,
}

pub struct Server {
    kind: Kind,
    pub port: u16,
    folder: tempfile::TempDir,
    process: Child,
}

/// A database of one test, and where it is.
pub struct Database {
    pub name: String,
    port: u16,
}

/// The server that most tests share; ends with the test program. `None` where it is not installed.
pub async fn shared(kind: Kind) -> Option<&'static Server> {
    use tokio::sync::OnceCell;
    static MARIADB: OnceCell<Option<Server>> = OnceCell::const_new();
    static MYSQL: OnceCell<Option<Server>> = OnceCell::const_new();
    let cell = if kind == Kind::MariaDb { &MARIADB } else { &MYSQL };
    let server = cell.get_or_init(|| Server::start(kind)).await.as_ref();
    if server.is_none() {
        eprintln!("skipped: no {kind:?} here");
    }
    server
}

impl Server {
    pub async fn start(kind: Kind) -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("gl").tempdir_in("/tmp").unwrap();
        let data = folder.path().join("data");
        match kind {
            Kind::MariaDb => {
                let made = Command::new("mariadb-install-db")
                    .args([
                        "--no-defaults",
                        "--auth-root-authentication-method=normal",
                        "--skip-test-db",
                        "--user=root",
                    ])
                    .arg(format!("--datadir={}", data.display()))
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
                made.ok().filter(std::process::ExitStatus::success)?;
            }
            Kind::MySql => {
                let copied = Command::new("cp").arg("-r").arg(cache()?.join("mysql-data-9.7.4-2")).arg(&data).status();
                copied.ok().filter(std::process::ExitStatus::success)?;
                // A copied server's identity is not its own.
                let _ = std::fs::remove_file(data.join("auto.cnf"));
            }
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = spawn(kind, &folder, port)?;
        let server = Self { kind, port, folder, process };
        server.wait_until_ready().await;
        Some(server)
    }

    pub async fn database(&self, name: &str) -> Database {
        // A database's name has 64 characters at most, and a namespace too.
        let database = Database { name: name.chars().take(60).collect(), port: self.port };
        let mut root = connect(self.port, None).await.unwrap();
        root.execute(AssertSqlSafe(format!("CREATE DATABASE {}", database.name))).await.unwrap();
        database
    }

    pub fn pause(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    pub fn crash(&mut self) {
        self.signal(rustix::process::Signal::KILL);
        // Its keeper, which hears of the wait, is to leave the folder alone.
        std::fs::remove_file(self.folder.path().join("m.pid")).unwrap();
        self.process.wait().unwrap();
    }

    pub async fn restart(&mut self) {
        self.process = spawn(self.kind, &self.folder, self.port).unwrap();
        self.wait_until_ready().await;
    }

    async fn wait_until_ready(&self) {
        let started = Instant::now();
        while connect(self.port, None).await.is_err() {
            assert!(started.elapsed() < Duration::from_secs(60), "the server did not start");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = std::fs::read_to_string(self.folder.path().join("m.pid")).unwrap();
        let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Database {
    pub fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/{}", self.port, self.name)
    }

    pub async fn connect(&self) -> MySqlConnection {
        connect(self.port, Some(&self.name)).await.unwrap()
    }

    pub async fn kill(&self, session: u64) {
        self.connect().await.execute(AssertSqlSafe(format!("KILL {session}"))).await.unwrap();
    }
}

async fn connect(port: u16, database: Option<&str>) -> sqlx::Result<MySqlConnection> {
    let mut options = MySqlConnectOptions::new().host("127.0.0.1").port(port).username("root");
    if let Some(database) = database {
        options = options.database(database);
    }
    options.connect().await
}

/// The server dies with us, however we end: the pipe that its keeper reads from closes then.
fn spawn(kind: Kind, folder: &tempfile::TempDir, port: u16) -> Option<Child> {
    let at = folder.path().display();
    let program = match kind {
        Kind::MariaDb => "mariadbd --no-defaults --user=root".to_owned(),
        Kind::MySql => {
            let root = cache()?.join("mysql");
            let root = root.display();
            format!(
                "{root}/usr/lib64/ld-linux-x86-64.so.2 \
                 --library-path {root}/usr/lib/x86_64-linux-gnu:{root}/usr/lib:{root}/usr/lib/mysql/private \
                 --argv0 /usr/sbin/mysqld {root}/usr/sbin/mysqld --no-defaults --basedir={root}/usr --user=root \
                 --lc-messages-dir={root}/usr/share/mysql --plugin-dir={root}/usr/lib/mysql/plugin \
                 --secure-file-priv=NULL --mysqlx=OFF --innodb-redo-log-capacity=16M --performance-schema=OFF --skip-log-bin"
            )
        }
    };
    let script = format!(
        "{program} --datadir={at}/data --port={port} --bind-address=127.0.0.1 --socket={at}/s.sock --pid-file={at}/m.pid \
         --innodb-buffer-pool-size=32M </dev/null >{at}/log 2>&1 & server=$!; \
         (cat >/dev/null; kill -9 $server 2>/dev/null; [ \"$(cat {at}/m.pid)\" = $server ] && rm -rf {at}) & wait $server"
    );
    // A shell gives its background jobs no input of their own, so the pipe comes as another descriptor.
    let script = format!("exec 3<&0; {}", script.replace("(cat >/dev/null", "(cat <&3 >/dev/null"));
    Command::new("sh").arg("-c").arg(script).stdin(Stdio::piped()).spawn().ok()
}

fn cache() -> Option<PathBuf> {
    let cache = PathBuf::from(std::env::var_os("HOME")?).join(".cache/dlock-servers");
    (cache.join("mysql/usr/sbin/mysqld").exists() && cache.join("mysql-data-9.7.4-2").exists()).then_some(cache)
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
