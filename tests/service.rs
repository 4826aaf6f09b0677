//! The example `service` does what its users copy it for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

#[allow(dead_code, reason = "the program uses more of it")]
#[path = "../examples/service.rs"]
mod service;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dlock::{Key, Wait};
use dlock_testkit::servers::shared;
use dlock_testkit::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

/// Sends a request, and gives the status and the body.
fn send(to: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut server = TcpStream::connect(to).unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    server.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    server.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer}")), body.into())
}

/// The same from an async test.
async fn ask(to: SocketAddr, method: &'static str, path: &'static str) -> (u16, String) {
    tokio::task::spawn_blocking(move || send(to, method, path)).await.unwrap()
}

/// All in one test, because a program has one set of metrics and one shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_sells_under_a_lock_and_tells_how_it_is_and_ends_within_its_deadline() {
    let metrics = service::count().unwrap();
    dlock::connect("main", "memory://").await.unwrap();
    dlock::verify().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let app = service::router(service::Shop::default(), metrics);
    let (all, bodies) = (Duration::from_secs(60), Duration::from_millis(200));
    let served = async move { service::run(listener, app, async { drop(stopped.await) }, all, bodies).await.unwrap() };
    let served = tokio::spawn(served);

    assert_eq!(ask(at, "GET", "/live").await.0, 200);
    assert_eq!(ask(at, "GET", "/ready").await.0, 200);
    assert_eq!(ask(at, "POST", "/stock/7/sell").await, (200, "99".into()));
    let stock = Key::text("stock:").value(&7);
    let held = dlock::lock(stock.clone()).backend("main").acquire().await.unwrap();
    assert_eq!(ask(at, "POST", "/stock/7/recount/0").await.0, 423);
    held.release().await.unwrap();
    assert_eq!(ask(at, "GET", "/stock/7").await, (200, "99".into()));
    let (status, page) = ask(at, "GET", "/locks").await;
    assert!(status == 200 && page.contains("<title>"), "{status} {page}");
    let (status, metrics) = ask(at, "GET", "/metrics").await;
    for line in ["dlock_acquisitions_total{", "lock=\"service::sell\"", "outcome=\"busy\"", "dlock_hold_seconds_bucket"]
    {
        assert!(status == 200 && metrics.contains(line), "no {line} in {metrics}");
    }

    // A handler that is stuck, such as on a slow partner: the shutdown cancels it and releases its lock.
    let stuck = tokio::spawn(ask(at, "POST", "/stock/8/recount/100000"));
    let stock = Key::text("stock:").value(&8);
    let is_held = async || dlock::lock(stock.clone()).backend("main").is_locked().await.unwrap();
    wait_until("the handler holds its lock", is_held).await.unwrap();
    stop.send(()).unwrap();
    assert_eq!(served.await.unwrap(), 0, "a lock is left to its ttl");
    assert_eq!(stuck.await.unwrap().0, 500, "the caller is told that its lock was lost");
    let late = dlock::lock("late").wait(Wait::None).acquire().await.unwrap_err();
    assert_eq!(late.kind().as_str(), "shut_down");
}

/// A process of the service, as an orchestrator starts it.
struct Process(Child);

impl Process {
    fn start(url: &str, namespace: &str) -> (Self, SocketAddr) {
        let tests = std::env::current_exe().unwrap();
        let program = tests.ancestors().nth(2).unwrap().join("examples/service");
        if !program.exists() {
            let cargo = Command::new(env!("CARGO")).args(["build", "--quiet", "--example", "service"]).status();
            assert!(cargo.unwrap().success());
        }
        let mut command = Command::new(program);
        command.env("LISTEN", "127.0.0.1:0").env("DLOCK_URL_MAIN", url).env("DLOCK_NAMESPACE", namespace);
        command.env("DLOCK_TUNE", "service::sell wait=none").env("RUST_LOG", "info").stdout(Stdio::piped());
        let mut child = Self(command.spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, address) = line.split_once("address")?;
            address.split(|c: char| !c.is_ascii_digit() && !".:".contains(c)).find_map(|word| word.parse().ok())
        });
        // It must be able to write on.
        std::thread::spawn(move || lines.for_each(drop));
        (child, address.expect("it listens"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn two_processes_share_their_locks_and_end_at_a_signal() {
    let url = shared().redis().unwrap();
    let namespace = format!("service{:08x}", fastrand::u32(..));
    let ((mut one, first), (_two, second)) = (Process::start(&url, &namespace), Process::start(&url, &namespace));
    // Nobody waits for a lock here, so the first may find the second at it.
    let counting = std::thread::spawn(move || {
        let answers = std::iter::repeat_with(|| send(first, "POST", "/stock/7/recount/100000"));
        answers.into_iter().find(|(status, _)| *status != 423).unwrap()
    });
    // The tuning says that nobody waits. Until the other process has the lock, this one sells.
    let mut busy = 0;
    while busy == 0 {
        busy = u32::from(send(second, "POST", "/stock/7/sell").0 == 423);
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = Pid::from_raw(i32::try_from(one.0.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(one.0.wait().unwrap().success());
    assert_eq!(counting.join().unwrap().0, 500);
    // Its lock was released: no ttl of 30 s is waited for. The first caller may meet the last moment of it.
    assert_eq!(send(second, "POST", "/stock/7/sell").0, 200);
}
