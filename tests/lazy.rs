//! Stores that are opened at their first use, as programs connect to them: a service starts while its store is down.

#[path = "lazy/from_env.rs"]
mod from_env;

use std::time::Duration;

use dlock::{Error, ErrorKind, Registry, Wait};
use dlock_testkit::servers::{Certificates, shared};
use dlock_testkit::{HangingFile, Mode, Proxy, wait_until};
use futures::executor::block_on;

/// Long enough for all that should happen soon, also on a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn is_outage(error: &Error) -> bool {
    *error.kind() == ErrorKind::Outage && error.is_retryable() && error.backend() == Some("store")
}

/// A store that is down at the start, and comes up later.
async fn a_store_that_is_down_at_the_start(url: String) {
    let (proxies, through) = Proxy::in_front_of_each(&url).unwrap();
    let set = |mode| proxies.iter().for_each(|proxy| proxy.set(mode));
    set(Mode::Refuse);
    let registry = Registry::new();
    let namespace = format!("lazy-{:016x}", fastrand::u64(..));
    registry.configure(|defaults| defaults.namespace = namespace).unwrap();
    registry.connect_lazy("store", &through).unwrap();
    let connections: usize = proxies.iter().map(Proxy::connections).sum();
    assert_eq!(connections, 0, "{through}: it was asked although nobody uses it");
    // Connected at once it is an error.
    registry.connect("now", &through).await.unwrap_err();
    let error = registry.ready("store").await.unwrap_err();
    assert!(is_outage(&error), "{through}: {error}");
    let lock = || registry.lock("job").backend("store").ttl(Duration::from_secs(15));
    let error = lock().try_acquire().await.unwrap_err();
    assert!(is_outage(&error) && error.key() == Some("job"), "{through}: {error}");
    let error = lock().holders().await.unwrap_err();
    assert!(is_outage(&error), "{through}: {error}");
    set(Mode::Pass);
    let guard = loop {
        match lock().ttl(SOON).wait(Wait::UpTo(SOON)).acquire().await {
            Ok(guard) => break guard,
            // The circuit breaker lets one opening a second through.
            Err(error) => assert!(is_outage(&error), "{through}: {error}"),
        }
    };
    registry.ready("store").await.unwrap_or_else(|error| panic!("{through}: {error}"));
    guard.release().await.unwrap_or_else(|error| panic!("{through}: {error}"));
    registry.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_may_come_up_after_the_program() {
    let urls = tokio::task::spawn_blocking(|| shared().stores().unwrap());
    futures::future::join_all(urls.await.unwrap().into_iter().map(a_store_that_is_down_at_the_start)).await;
}

/// A silent server holds no caller longer than a request may take, and its opening is not lost with the callers.
#[tokio::test]
async fn a_silent_server_is_an_outage_until_it_speaks() {
    let url = tokio::task::spawn_blocking(|| shared().redis()).await.unwrap().unwrap();
    let (proxy, through) = Proxy::in_front_of(&url).unwrap();
    proxy.set(Mode::BLACKHOLE);
    let registry = Registry::new();
    registry.connect_lazy("store", &through).unwrap();
    let lock = || registry.lock("silent").ttl(Duration::from_secs(1));
    let errors = futures::future::join_all((0..5).map(|_| lock().try_acquire())).await;
    for error in errors {
        let error = error.unwrap_err();
        assert!(is_outage(&error) && error.message().contains("was not open within 1s"), "{error}");
    }
    proxy.set(Mode::Pass);
    proxy.cut();
    let guard = loop {
        match lock().ttl(SOON).wait(Wait::UpTo(SOON)).acquire().await {
            Ok(guard) => break guard,
            Err(error) => assert!(is_outage(&error), "{error}"),
        }
    };
    guard.release().await.unwrap();
}

#[test]
fn a_url_that_cannot_be_is_refused_before_its_first_use() {
    let registry = Registry::new();
    for url in ["redis://127.0.0.1:notaport/", "mysql://127.0.0.1/db?weg=lease", "nothing://", "no url"] {
        let error = registry.connect_lazy("store", url).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{url}: {error}");
    }
    let error = registry.connect_lazy("pair", "paired://?gate=pair&authority=sure").unwrap_err();
    assert!(error.message().contains("cannot be made of itself"), "{error}");
    registry.connect_lazy("store", "memory://").unwrap();
    let error = registry.connect_lazy("store", "memory://").unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::AlreadyRegistered);
}

/// A mistake in the text of a URL is told when the program starts, with the text to write instead.
#[test]
fn a_url_whose_own_text_is_wrong_is_refused_with_what_to_write() {
    let (registry, mut wrong) = (Registry::new(), Vec::new());
    for (url, instead) in [
        // Brought from other programs.
        ("mysql://127.0.0.1/db?charset=utf8mb4", "leave it out"),
        ("mysql://127.0.0.1/db?useSSL=true", "tls=verify"),
        ("mysql://127.0.0.1/db?connection_limit=5", "max_connections"),
        ("postgres://u@127.0.0.1/db?application_name=shop", "leave it out"),
        ("postgres://u@127.0.0.1/db?options=-csearch_path%3Dx", "leave it out"),
        ("postgres://u@127.0.0.1/db?host=other", "the hosts stand before the path"),
        ("postgres://u@127.0.0.1/db?pgbouncer=true", "leave it out"),
        ("redis://127.0.0.1?ssl_cert_reqs=none", "`ca`"),
        ("redis://127.0.0.1?db=3", "after the host"),
        ("consul://127.0.0.1?token=x", ":token@"),
        ("sqlite://locks.db?mode=ro", "`rwc`"),
        // Known options that do not go together, and values that cannot be.
        ("mysql://127.0.0.1", "name the database"),
        ("mysql://127.0.0.1/db?keys=literal", "way=named"),
        ("mysql://127.0.0.1/db?way=named&max_connections=3", "way=lease"),
        ("mysql://127.0.0.1/db?way=row&layout=shedlock", "way=lease"),
        ("mysql://127.0.0.1/db?table=orders&column=id", "way=row"),
        ("postgres://u@127.0.0.1/db?way=row&table=orders", "`table` and `column` go together"),
        ("postgres://u@127.0.0.1/db?shedlock_table=x", "layout=shedlock"),
        ("postgres://u@127.0.0.1/db?connect_timeout=0s", "such as 5s"),
        ("postgres://u@db.example/db", "tls=verify"),
        ("redis://127.0.0.1,127.0.0.2", "redis-sentinel://"),
        ("redis://127.0.0.1/first", "number"),
        ("redlock://127.0.0.1,127.0.0.2", "odd number"),
        ("etcd://127.0.0.1/locks", "no path may follow"),
        ("zk://127.0.0.1/a/../b", "chroot"),
        ("consul://127.0.0.1,127.0.0.2", "one agent"),
        ("sqlite://:memory:", "memory://"),
        ("paired://?gate=quick", "authority"),
        // Also beside files, which are not read.
        ("postgres://u@127.0.0.1/db?tls=off&ca=/nowhere", "only used with tls=verify"),
        ("postgres://u@127.0.0.1/db?tls=verify&ca=/nowhere&way=row&table=orders", "`table` and `column` go together"),
        ("mysql://127.0.0.1?tls=verify&ca=/nowhere", "name the database"),
        ("mysql://127.0.0.1/db?tls=verify&cert=/nowhere", "needs its key"),
        ("rediss://127.0.0.1/first?ca=/nowhere", "number"),
        ("etcd://127.0.0.1/locks?tls=verify&ca=/nowhere", "no path may follow"),
        ("zk://127.0.0.1/a/../b?tls=verify&ca=/nowhere", "chroot"),
        ("consul://:secret@127.0.0.1?token_file=/nowhere", "use one of them"),
    ] {
        match registry.connect_lazy("store", url) {
            Err(error) if error.to_string().contains(instead) => {
                assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{url}: {error}");
            }
            answer => wrong.push(format!("{url}: {answer:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A file may come later than the program.
    registry.connect_lazy("store", "postgres://u@db.example/db?tls=verify&ca=/nowhere/ca.pem").unwrap();
    registry.connect_lazy("agent", "consul://127.0.0.1?token_file=/nowhere").unwrap();
}

#[test]
fn the_stores_of_a_pair_are_opened_with_it() {
    let registry = Registry::new();
    // In any order: nothing is looked up before the first use.
    registry.connect_lazy("pair", "paired://?gate=quick&authority=sure").unwrap();
    let error = registry.lock("job").backend("pair").wait(Wait::None).acquire_blocking().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::BackendNotRegistered { .. }), "{error}");
    registry.connect_lazy("quick", "memory://").unwrap();
    registry.connect_lazy("sure", "memory://").unwrap();
    let guard = registry.lock("job").backend("pair").wait(Wait::None).acquire_blocking().unwrap();
    for member in ["quick", "sure"] {
        let busy = registry.lock("job").backend(member).wait(Wait::None).acquire_blocking().unwrap_err();
        assert_eq!(*busy.kind(), ErrorKind::Busy, "{member}");
    }
    block_on(guard.release()).unwrap();
}

/// A store is opened on dlock's own thread at its first use. There one file that hangs would hold up all stores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_on_a_disk_that_hangs_ends_the_call_in_time() {
    let certificates = Certificates::make().unwrap();
    for url in [
        "rediss://127.0.0.1:1/?",
        "mysql://a@127.0.0.1:1/d?tls=verify&",
        "postgres://a@127.0.0.1:1/d?tls=verify&",
        "etcd://127.0.0.1:1?tls=verify&",
        "zk://127.0.0.1:1?tls=verify&",
    ] {
        let (folder, hanging) = (tempfile::tempdir().unwrap(), HangingFile::new().unwrap());
        let ca = folder.path().join("ca.pem");
        std::fs::copy(certificates.file("ca.pem"), &ca).unwrap();
        let registry = Registry::new();
        registry.connect_lazy("store", &format!("{url}ca={}", ca.display())).unwrap();
        std::fs::rename(hanging.path(), &ca).unwrap();
        let lock = registry.lock("job").backend("store").ttl(Duration::from_secs(3)).wait(Wait::None);
        let asked = tokio::spawn(lock.acquire());
        let has_ended = async || asked.is_finished();
        wait_until("the call to end, although its file hangs", has_ended).await.unwrap();
        let error = asked.await.unwrap().unwrap_err();
        assert!(is_outage(&error), "{url}: {error}");
    }
}
