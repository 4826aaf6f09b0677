//! A private etcd, a raw client to look behind the backend's back, and a small stand-in for the core.

use std::io::Read;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dlock::backends::etcd::Etcd;
use dlock::backends::etcd::client::{Client, GetOptions};
use dlock::{Attempt, Backend, BootInstant, Claim, Clock, Hold, Key, LockKey, Stand, Wake};
use futures::FutureExt;

/// An etcd of our own, which ends with this process.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    port: u16,
    peer: u16,
    extra: Vec<String>,
    shell: Option<Child>,
}

impl Server {
    pub(crate) fn start(extra: &[&str]) -> Self {
        let extra = extra.iter().map(ToString::to_string).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { folder, port: free_port(), peer: free_port(), extra, shell: None };
        server.launch();
        server
    }

    /// Kills it and starts it again with the same data.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.launch();
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            drop(shell.stdin.take());
            shell.wait().unwrap();
        }
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        format!("etcd://{}", self.host())
    }

    fn launch(&mut self) {
        let client = format!("http://{}", self.host());
        let peer = format!("http://127.0.0.1:{}", self.peer);
        // The shell kills its child when this process closes the pipe, however it ends.
        let script = r#""$@" & child=$!; read -r _; kill -9 $child; wait $child"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(binary());
        command.args(["--name", "n1", "--logger", "zap", "--log-level", "error", "--initial-cluster"]);
        command.arg(format!("n1={peer}")).arg("--data-dir").arg(self.folder.path().join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]).args(&self.extra);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        self.shell = Some(command.spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(30);
        while !self.is_healthy() {
            assert!(Instant::now() < end, "etcd did not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_healthy(&self) -> bool {
        let Ok(mut stream) = std::net::TcpStream::connect(self.host()) else { return false };
        let mut answer = String::new();
        let asked = std::io::Write::write_all(&mut stream, b"GET /health HTTP/1.0\r\n\r\n");
        asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains(r#""health":"true""#)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Short elections: the shortest ttl is one second.
pub(crate) const QUICK: [&str; 4] = ["--heartbeat-interval", "50", "--election-timeout", "500"];

/// The URL of the server that all tests share.
pub(crate) fn shared() -> String {
    static SHARED: OnceLock<(Option<Server>, String)> = OnceLock::new();
    let (_, url) = SHARED.get_or_init(|| match std::env::var("DLOCK_TEST_ETCD") {
        Ok(url) => (None, format!("etcd://{}", url.split_once("://").map_or(url.as_str(), |(_, host)| host))),
        Err(_) => {
            let server = Server::start(&QUICK);
            let url = server.url();
            (Some(server), url)
        }
    });
    url.clone()
}

/// A backend of its own: as good as another process.
pub(crate) async fn process() -> Etcd {
    Etcd::open(&shared(), &Clock::system()).await.unwrap()
}

/// A client beside the backend.
pub(crate) async fn raw() -> Client {
    Client::connect([shared().replace("etcd://", "http://")], None).await.unwrap()
}

/// A lock that no other test uses.
pub(crate) fn lock(name: &'static str) -> LockKey {
    LockKey::new(&format!("t{}", fastrand::u64(..)), Key::text(name)).unwrap()
}

pub(crate) const TTL: Duration = Duration::from_secs(3);

pub(crate) fn claim(key: &LockKey) -> Arc<Claim> {
    claim_for(key, TTL, true)
}

pub(crate) fn claim_for(key: &LockKey, ttl: Duration, renewed: bool) -> Arc<Claim> {
    let mut claim = Claim::new(key.clone(), ttl, "etcd_backend::test").unwrap();
    claim.renewed = renewed;
    Arc::new(claim)
}

/// The names of a lock's keys, oldest first.
pub(crate) async fn line(key: &LockKey) -> Vec<String> {
    let options = GetOptions::new()
        .with_prefix()
        .with_sort(dlock::backends::etcd::client::SortTarget::Create, dlock::backends::etcd::client::SortOrder::Ascend);
    let found = raw().await.get(prefix(key), Some(options)).await.unwrap();
    found.kvs().iter().map(|key| key.key_str().unwrap().to_owned()).collect()
}

pub(crate) fn prefix(key: &LockKey) -> String {
    format!("{}/", key.as_str().replace('/', "%2F"))
}

pub(crate) fn soon() -> BootInstant {
    Clock::system().now().after(Duration::from_secs(30))
}

/// Asks once without standing in line.
pub(crate) async fn ask(process: &Etcd, claim: &Arc<Claim>) -> Option<Hold> {
    held(process.try_acquire(claim, Stand::No).await.unwrap())
}

/// Asks once and stands in line.
pub(crate) async fn stand(process: &Etcd, claim: &Arc<Claim>) -> Result<Hold, Wake> {
    match process.try_acquire(claim, Stand::Until(soon())).await.unwrap() {
        Attempt::Acquired(hold) => Ok(hold),
        Attempt::Contended(wake) => Err(wake),
    }
}

/// Waits as the core would: for news, or until it is time to ask again.
pub(crate) async fn acquire(process: &Etcd, claim: &Arc<Claim>) -> Hold {
    let clock = Clock::system();
    loop {
        match stand(process, claim).await {
            Ok(hold) => return hold,
            Err(wake) => {
                let by = wake.ask_by.expect("a place in line must be kept");
                if let Some(signal) = wake.signal {
                    let _ = clock.timeout_at(by, signal).await.map(Result::unwrap);
                }
            }
        }
    }
}

pub(crate) fn held(attempt: Attempt) -> Option<Hold> {
    match attempt {
        Attempt::Acquired(hold) => Some(hold),
        Attempt::Contended(_) => None,
    }
}

pub(crate) fn token(hold: &Hold) -> u64 {
    hold.token.unwrap().get()
}

/// Nothing comes of this future within a short while.
pub(crate) async fn is_quiet(future: &mut (impl Future + Unpin)) -> bool {
    tokio::time::sleep(Duration::from_millis(300)).await;
    future.now_or_never().is_none()
}

fn binary() -> PathBuf {
    let unpacked = std::env::home_dir().unwrap().join(".cache/dlock-servers/etcd/usr/bin/etcd");
    if unpacked.is_file() { unpacked } else { "etcd".into() }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
