//! Queues that dlock and a foreign client share: each waiter has its share, and a process that dies or stands still at the head keeps
//! nobody out.

use std::process::Command;
use std::time::{Duration, Instant};

use dlock::backends::zookeeper::client::{Acls, Client, CreateMode};
use dlock::{Key, Lock, Registry, Wait};
use dlock_contract::Owner;
use dlock_testkit::child::Child;
use dlock_testkit::servers::shared;

use crate::foreign::{Foreign, built};
use crate::{LONG, MS, SECOND};

const URL: &str = "DLOCK_INTEROP_URL";
const ID: &str = "DLOCK_INTEROP_ID";

/// The ttl of the process that dies.
const TTL: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcds_queue_with_go() {
    let url = format!("{}?keys=literal", shared().etcd().unwrap().replace("http://", "etcd://"));
    let go = |id: &str, sessions: u32, seconds: u32| {
        let mut command = Command::new(built("etcd-mutex").root().join("etcd-mutex"));
        command.args(["-endpoint", &shared().etcd().unwrap(), "-prefix", id]);
        command.args(["-sessions", &sessions.to_string(), "-for", &format!("{seconds}s")]);
        command
    };
    shares(&url, go).await;
    deaths(&url, 10, go).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeepers_queue_with_kazoo() {
    let url = shared().zookeeper().unwrap();
    let hosts = url.strip_prefix("zk://").unwrap().to_owned();
    let raw = Client::connect(&hosts).await.unwrap();
    let counter = format!("/count-{}", Owner::fresh().unwrap().to_hex());
    raw.create(&counter, b"0", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    let kazoo = |id: &str, threads: u32, seconds: u32| {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", include_str!("zookeeper/kazoo_locks.py"), &hosts, id, &counter, ""]);
        command.args([&threads.to_string(), &seconds.to_string(), "lock"]);
        command
    };
    let url = format!("{url}?keys=literal&layout=kazoo");
    shares(&url, kazoo).await;
    deaths(&url, 10, kazoo).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consuls_lock_with_go() {
    let url = format!("{}?keys=literal&lock_delay=0s", shared().consul().unwrap());
    let go = |id: &str, tasks: u32, seconds: u32| {
        let mut command = Command::new(built("consul-api").root().join("consul-api"));
        command.args(["-address", shared().consul().unwrap().trim_start_matches("consul://")]);
        command.args(["-name", id, "-tasks", &tasks.to_string(), "-for", &format!("{seconds}s")]);
        command
    };
    // Its shares are in `consul.rs`: there is no queue.
    // The shortest session ends after 20 s.
    deaths(&url, 35, go).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_in_redis_with_redsync() {
    let url = format!("{}?keys=literal", shared().redis().unwrap());
    shares_of_time(&url).await;
    deaths(&url, 10, redsync).await;
}

/// Ours leave half of the time to redsync. It asks every 50 to 250 ms, so it cannot use all of that, and the lock is free meanwhile.
async fn shares_of_time(url: &str) {
    const HOLD: Duration = Duration::from_millis(10);
    for others in [2, 4, 8] {
        let (registry, id) = (open(url).await, fresh(url));
        let theirs = Foreign::start(redsync(&id, others, 6));
        let start = Instant::now();
        let ours = ours_until(&registry, &id, HOLD, start + 5 * SECOND).await;
        let share = ours as f64 * HOLD.as_secs_f64() / start.elapsed().as_secs_f64();
        let theirs = tokio::task::spawn_blocking(|| theirs.seen()).await.unwrap();
        println!("beside {others}: ours had {share:.2} of the time ({ours} and {theirs:?})");
        assert!(share > 0.1, "ours had {share:.2} of the time: nothing is proven");
        assert!(share < 0.6, "ours had {share:.2} of the time beside {others}: {theirs:?}");
    }
}

fn redsync(id: &str, tasks: u32, seconds: u32) -> Command {
    let mut command = Command::new(built("redsync").root().join("redsync"));
    command.args(["-urls", &shared().redis().unwrap(), "-name", id]);
    command.args(["-tasks", &tasks.to_string(), "-for", &format!("{seconds}s")]);
    command
}

/// Beside two, four and eight waiters of theirs, the waiter of this process has its part of the holds.
async fn shares(url: &str, theirs: impl Fn(&str, u32, u32) -> Command) {
    for others in [2, 4, 8] {
        let (registry, id) = (open(url).await, fresh(url));
        let theirs = Foreign::start(theirs(&id, others, 5));
        let end = Instant::now() + 5 * SECOND;
        let ours = ours_until(&registry, &id, MS, end).await;
        let theirs = tokio::task::spawn_blocking(|| theirs.seen()).await.unwrap();
        let fair = (ours + theirs.holds) as f64 / f64::from(others + 1);
        let share = ours as f64 / fair;
        println!("beside {others}: {share:.2} of the fair share ({ours} and {theirs:?})");
        assert!(fair > 20.0, "only {fair} holds are fair: nothing is proven");
        assert!(theirs.failures == 0 && share > 0.7, "{share:.2} of the fair share beside {others}");
    }
}

/// A process of ours that waits is killed, or stopped for good. Both sides go on. For so many seconds after that, ours are
/// counted: long enough for the end of a session or a lease of the dead one.
async fn deaths(url: &str, counted: u32, theirs: impl Fn(&str, u32, u32) -> Command) {
    for is_killed in [true, false] {
        let (registry, id) = (open(url).await, fresh(url));
        let mut theirs = Foreign::start(theirs(&id, 2, counted + 14));
        let mut waiter = Child::spawn("wait", &[(URL, url), (ID, &id)]).unwrap();
        // It has been in the queue before, and is there again.
        for line in ["held", "waits"] {
            waiter.wait_line(line, LONG).unwrap();
        }
        let end = Instant::now() + counted * SECOND;
        if is_killed { waiter.kill9() } else { waiter.stop() }.unwrap();
        let ours = ours_until(&registry, &id, MS, end).await;
        // A dead head that stayed would keep this process out until theirs have ended.
        let runs = theirs.runs();
        let theirs = tokio::task::spawn_blocking(|| theirs.seen()).await.unwrap();
        println!("killed: {is_killed}: {ours} of ours, {theirs:?}");
        assert!(runs, "killed: {is_killed}: ours waited until theirs had ended: {ours} of ours beside {theirs:?}");
        assert!(theirs.holds > 10, "killed: {is_killed}: {theirs:?}");
        // Ours is one of three waiters, and theirs run for up to 14 s more.
        assert!(ours * 12 > theirs.holds, "killed: {is_killed}: {ours} of ours beside {theirs:?}");
    }
}

/// A name that no other test uses. In ZooKeeper it is a path.
fn fresh(url: &str) -> String {
    let root = if url.starts_with("zk:") { "/" } else { "jobs/" };
    root.to_owned() + &Owner::fresh().unwrap().to_hex()
}

/// The holds of two tasks of this process. One of them waits while the other one holds.
async fn ours_until(registry: &Registry, id: &str, hold: Duration, end: Instant) -> u64 {
    let of_one = || holds_until(registry, id, hold, end);
    let holds = futures::future::join(of_one(), of_one()).await;
    holds.0 + holds.1
}

async fn holds_until(registry: &Registry, id: &str, hold: Duration, end: Instant) -> u64 {
    let mut holds = 0;
    while Instant::now() < end {
        let guard = lock(registry, id, LONG).acquire().await.unwrap();
        tokio::time::sleep(hold).await;
        guard.release().await.unwrap();
        holds += 1;
    }
    holds
}

async fn open(url: &str) -> Registry {
    let registry = Registry::new();
    registry.connect("store", url).await.unwrap();
    registry.set_default("store").unwrap();
    registry
}

/// `id` is the whole name of the lock.
fn lock(registry: &Registry, id: &str, ttl: Duration) -> Lock {
    let (root, own) = id.rsplit_once('/').unwrap();
    let root = if root.is_empty() { "/" } else { "jobs/" };
    registry.lock(Key::text(root).value(&own)).ttl(ttl).wait(Wait::UpTo(2 * LONG))
}

/// The process that dies.
pub(crate) fn wait_for_ever() {
    let [url, id] = [URL, ID].map(|name| std::env::var(name).unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let registry = open(&url).await;
        loop {
            println!("waits");
            let guard = lock(&registry, &id, TTL).acquire().await.unwrap();
            println!("held");
            guard.release().await.unwrap();
        }
    });
}
