//! Replies that are spoilt, or stop: no call panics, none is without an end, and all is well once the replies are.
//!
//! A lock cannot be right on lies. But a process that goes down with one bad reply takes all of its other locks with it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::thread;
use std::time::Duration;

use dlock::{ErrorKind, Key, Registry, Renew, Result, Wait};
use dlock_testkit::servers::shared;
use dlock_testkit::{Mode, Proxy};
use futures::FutureExt;
use futures::future::join_all;

const SECOND: Duration = Duration::from_secs(1);

/// In real time, for one call. Only one that hangs comes near it.
const HANG: Duration = Duration::from_secs(180);

/// How often each store is opened, and asked, by spoilt replies.
const OPENINGS: usize = 4;
const CALLS: usize = 16;

/// At how many places of an opening its server falls silent, one after the other.
const SILENCES: usize = 2;

#[test]
fn a_server_that_falls_silent_while_a_store_is_opened_ends_the_opening() {
    each(&stores(), async |proxies, url| {
        ends(url, "the good opening", open(url)).await.unwrap();
        let replies: usize = proxies.iter().map(Proxy::replies).sum();
        for _ in 0..SILENCES {
            let after = fastrand::usize(..replies);
            set(proxies, Mode::FallSilent { after });
            // It may be open before so many replies.
            let _ = ends(url, &format!("an opening that is answered {after} times"), open(url)).await;
            set(proxies, Mode::Pass);
            proxies.iter().for_each(Proxy::cut);
        }
        ends(url, "the last opening", open(url)).await.unwrap();
    });
}

#[test]
fn spoilt_replies_end_no_call_by_a_panic_and_no_call_is_without_an_end() {
    if let Ok(url) = std::env::var(ALONE) {
        return each(&[url], async |proxies, url| calls(proxies, url).await);
    }
    let (alone, stores): (Vec<_>, Vec<_>) = stores().into_iter().partition(|url| takes_what_it_is_told(url));
    let alone = alone.into_iter().map(|url| thread::spawn(move || calls_alone(&url))).collect::<Vec<_>>();
    each(&stores, async |proxies, url| calls(proxies, url).await);
    let failed: Vec<_> = alone.into_iter().filter_map(|calls| calls.join().unwrap().err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A process with the calls to one store has its URL here.
const ALONE: &str = "SPOILT_STORE";

/// Whether the client makes room for as many entries as an answer names. A process that cannot have so much memory ends:
/// `docs/upstream/zookeeper-client.md` and `docs/upstream/sqlx-mysql.md`.
fn takes_what_it_is_told(url: &str) -> bool {
    ["zk:", "mysql:", "mariadb:"].iter().any(|scheme| url.starts_with(scheme))
}

fn calls_alone(url: &str) -> Result<(), String> {
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "spoilt_replies_end_no_call_by_a_panic_and_no_call_is_without_an_end", "--nocapture"]);
    let ended = test.env(ALONE, url).output().unwrap();
    let output = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let has_passed = ended.status.success() && output.contains("1 passed");
    if has_passed || output.contains("\nmemory allocation of ") {
        return Ok(());
    }
    Err(format!("{url}: {}: {output}", ended.status))
}

/// Calls whose replies are spoilt, and one whose replies are not.
async fn calls(proxies: &[Proxy], url: &str) {
    set(proxies, Mode::Mangle);
    for _ in 0..OPENINGS {
        let _ = ends(url, "an opening", open(url)).await;
    }
    set(proxies, Mode::Pass);
    let registry = ends(url, "the good opening", open(url)).await.unwrap();
    set(proxies, Mode::Mangle);
    for call in 0..CALLS {
        let lock = || registry.lock(["one", "two"][call % 2]).ttl(3 * SECOND).wait(Wait::UpTo(SECOND));
        let run = lock().run(|held| async move { held.confirm().await.is_ok() });
        let _ = ends(url, "a call", run).await;
        let _ = ends(url, "a look", lock().holders()).await;
        if call % 8 == 0 {
            let _ = ends(url, "a list", registry.locks().page()).await;
        }
    }
    all_is_well(proxies, url, &registry).await;
}

/// Replies are good from now on.
async fn all_is_well(proxies: &[Proxy], url: &str, registry: &Registry) {
    set(proxies, Mode::Pass);
    // Misread bytes go with their connections, a moment later.
    proxies.iter().for_each(Proxy::cut);
    let good = async {
        while let Err(error) = registry.lock("good").wait(Wait::UpTo(10 * SECOND)).run(|_| async {}).await {
            assert!(error.is_retryable() || *error.kind() == ErrorKind::Protocol, "{url}: {error}");
            tokio::time::sleep(SECOND / 10).await;
        }
    };
    ends(url, "the first good call", good).await;
}

/// An answer on which the client library panics: a message that is shorter than its own length (PostgreSQL), and an error without
/// a number (MySQL, MariaDB).
fn poison(url: &str) -> Option<&'static [u8]> {
    match url.split(':').next()? {
        "postgres" => Some(b"Z\0\0\0\0"),
        "mysql" | "mariadb" => Some(b"\x01\0\0\x01\xff"),
        _ => None,
    }
}

#[test]
fn a_client_library_that_panics_ends_no_call_by_a_panic_and_what_watches_the_holds_goes_on() {
    let mut stores = stores();
    stores.retain(|url| poison(url).is_some());
    each(&stores, async |proxies, url| {
        let registry = ends(url, "the opening", open(url)).await.unwrap();
        // Renewals are far apart, so only the watch of the holds tells a loss. A lease knows no other than a renewal.
        let has_watch = url.contains("way=");
        let ttl = if has_watch { HANG * 6 } else { 3 * SECOND };
        let held = registry.lock("held").ttl(ttl).acquire().await.unwrap();
        set(proxies, Mode::Replace(poison(url).unwrap()));
        let called = std::time::Instant::now();
        // The holds are looked at four times in a second.
        while called.elapsed() < 2 * SECOND {
            let run = registry.lock("other").ttl(3 * SECOND).wait(Wait::UpTo(SECOND)).run(|_| async {});
            let _ = ends(url, "a call", run).await;
            let _ = ends(url, "a look", registry.lock("held").holders()).await;
        }
        all_is_well(proxies, url, &registry).await;
        // Its session may have ended.
        let _ = ends(url, "a release", held.release()).await;
        // A run that has failed here leaves its lock.
        let key = Key::text("broken").value(&fastrand::u64(..));
        let lock = registry.lock(key.clone()).ttl(HANG * 6);
        let lock = if has_watch { lock } else { lock.renew(Renew::Every(SECOND)) };
        let broken = lock.acquire().await.unwrap();
        let id = registry.lock(key.clone()).holders().await.unwrap().holders[0].id.unwrap();
        assert!(registry.lock(key.clone()).break_hold(id).by("alice").because("a test").await.unwrap(), "{url}");
        ends(url, "the news that a hold is broken", broken.lost()).await;
        let _ = ends(url, "its release", broken.release()).await;
    });
}

/// The stores, by their URLs.
fn stores() -> Vec<String> {
    let servers = shared();
    let [mariadb, postgres] = [servers.mariadb().unwrap(), servers.postgres().unwrap()];
    vec![
        servers.redis().unwrap(),
        servers.redlock().unwrap(),
        mariadb.clone(),
        format!("{mariadb}?way=named"),
        format!("{mariadb}?way=row"),
        postgres.clone(),
        format!("{postgres}?way=named"),
        format!("{postgres}?way=row"),
        servers.etcd().unwrap().replace("http://", "etcd://"),
        servers.zookeeper().unwrap(),
        servers.consul().unwrap(),
    ]
}

/// Does `work` with each of these stores, behind proxies of its own, and with all of them side by side.
fn each(stores: &[String], work: impl AsyncFn(&[Proxy], &str)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let each = stores.iter().map(async |url| {
        let (proxies, through) = Proxy::in_front_of_each(url).unwrap();
        work(&proxies, &through).await;
    });
    runtime.block_on(join_all(each));
}

fn set(proxies: &[Proxy], mode: Mode) {
    proxies.iter().for_each(|proxy| proxy.set(mode));
}

async fn open(url: &str) -> Result<Registry> {
    let registry = Registry::new();
    // A namespace is locked in one way.
    let way = url.split_once("way=").map_or("lease", |(_, way)| way);
    registry.configure(|defaults| defaults.namespace = format!("replies-{way}"))?;
    registry.connect("store", url).await?;
    registry.set_default("store")?;
    Ok(registry)
}

async fn ends<T>(url: &str, what: &str, call: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(HANG, AssertUnwindSafe(call).catch_unwind()).await;
    ended.unwrap_or_else(|_| panic!("{url}: {what} hangs")).unwrap_or_else(|_| panic!("{url}: {what} panics"))
}
