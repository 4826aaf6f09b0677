//! The same on other topologies than one server, and with accounts that have only the needed rights.

use dlock::backends::redis::{Literal, Redisson};
use dlock::{Clock, ErrorKind, Key, LockKey, Registry};
use dlock_contract::{Backend, Queue, Released};
use dlock_testkit::holds::{claim_on, stand, take, wait};
use dlock_testkit::servers::{self, Instance, RedisCluster, RedisSentinels};

use super::bench::{Bench, LONG, SECOND};
use super::rlock::{RLock, WATCHDOG_MS};
use crate::rights;

fn account(server: &Instance, name: &str, rights: &str) -> String {
    let listed = rights::lines([1, 2, 3, 5]);
    server.ask(&format!("ACL SETUSER {name} reset on >pw {listed} {rights}")).unwrap();
    format!("redis://{name}:pw@127.0.0.1:{}/", server.port())
}

fn server() -> Instance {
    Instance::start(servers::Redis::default()).unwrap()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

async fn literal(url: String) -> dlock::Result<Literal> {
    Literal::connect(&format!("{url}?keys=literal"), &Clock::system()).await
}

async fn redisson(url: String) -> Redisson {
    Redisson::connect(&format!("{url}?layout=redisson"), &Clock::system()).await.unwrap()
}

/// Under the same key each of them is another lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_tells_of_the_other_forms_and_databases_that_are_in_use() {
    let server = dlock_testkit::servers::Instance::start(dlock_testkit::servers::Redis::default()).unwrap();
    let registry = dlock::Registry::new();
    registry.connect("own", &server.url()).await.unwrap();
    assert_eq!(
        registry.ready("own").await.unwrap().findings.iter().filter(|text| text.contains("another lock")).count(),
        0
    );
    for (name, query) in [("literal", "?keys=literal"), ("redisson", "?layout=redisson"), ("second", "2")] {
        registry.connect(name, &format!("{}{query}", server.url())).await.unwrap();
    }
    let findings = registry.ready("own").await.unwrap().findings.join("; ");
    for text in ["in this database with keys=literal", "in this database with layout=redisson", "in database 2"] {
        assert!(findings.contains(text), "{text}: {findings}");
    }
    let findings = registry.ready("literal").await.unwrap().findings.join("; ");
    assert!(findings.contains("in this database without keys=literal"), "{findings}");
}

/// An operator looks for the name that an error shows in the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_shows_the_name_that_foreign_clients_see_or_the_hash_of_the_key() {
    let server = server();
    let key = || Key::text("stock:").value(&42);
    for (query, name) in [("", "dl1:shop:stock:<42>"), ("?keys=literal", "stock:42"), ("?layout=redisson", "stock:42")]
    {
        let registry = Registry::new();
        registry.configure(|defaults| defaults.namespace = "shop".into()).unwrap();
        registry.connect("redis", &format!("{}{query}", server.url())).await.unwrap();
        registry.set_default("redis").unwrap();
        let _held = registry.lock(key()).acquire().await.unwrap();
        let busy = registry.lock(key()).try_acquire().await.unwrap_err();
        assert_eq!(busy.key(), Some(name), "{query}");
        let hidden = registry.lock(key()).sensitive().try_acquire().await.unwrap_err();
        assert_eq!(hidden.key(), Some("sha256:7408baceedf055e0"), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn literal_names_need_the_listed_rights_and_the_shared_names() {
    let (bench, server) = (Bench::new(), server());
    let ours = literal(account(&server, "whole", &format!("{} {}", rights::also("~stock:*"), rights::lines([4]))))
        .await
        .unwrap();
    server.ask(&format!("SET {} theirs NX PX 30000", bench.name)).unwrap();
    let claim = bench.claim(LONG);
    drop(stand(&ours, &claim).await);
    server.ask(&format!("DEL {}", bench.name)).unwrap();
    let hold = wait(&ours, &claim, LONG).await;
    let next = bench.claim(LONG);
    let wake = stand(&ours, &next).await;
    ours.release(&hold).await.unwrap();
    let hold = wait(&ours, &next, LONG).await;
    drop(wake);
    assert_eq!(ours.release(&hold).await.unwrap(), Released::Released);
    // Without the rights on the shared names, and without those on our names.
    for rights in ["~elsewhere:*", "resetkeys ~stock:*"] {
        let error = match literal(account(&server, "less", rights)).await {
            Ok(ours) => ours.try_acquire(&claim, Queue::Leave).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{rights}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redissons_layout_needs_the_listed_rights_and_its_channels() {
    let (mut bench, server) = (Bench::new(), server());
    bench.url = server.url();
    let mut java = RLock::new(&bench);
    let url =
        |channels: &str| account(&server, "any", &format!("~stock:* {} {channels}", rights::also("+unsubscribe")));
    let ours = redisson(url(rights::also("&redisson_lock__channel:*"))).await;
    assert_eq!(java.lock(WATCHDOG_MS), None);
    let claim = bench.claim(LONG);
    let wake = stand(&ours, &claim).await;
    assert!(wake.signal.is_some());
    drop(wake);
    assert_eq!(java.unlock(), Some(1));
    let hold = wait(&ours, &claim, LONG).await;
    assert_eq!(ours.release(&hold).await.unwrap(), Released::Released);
    // Without them each release would leave the lock until the end of its lease.
    let url = format!("{}?layout=redisson", url("&other:*"));
    let error = Redisson::connect(&url, &Clock::system()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("redisson_lock__channel"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn literal_names_work_in_a_cluster_with_and_without_a_hash_tag() {
    let cluster = blocking(|| RedisCluster::start(3, 0, false, &[]).unwrap()).await;
    let (one, two) = (literal(cluster.url()).await.unwrap(), literal(cluster.url()).await.unwrap());
    for (text, name) in [("stock:", "stock:42"), ("{shop}:stock:", "{shop}:stock:42")] {
        let memory = &*crate::names::memory_of_foreign_clients(name);
        let key = LockKey::new("test", Key::text(text).value(&42)).unwrap();
        let claim = || claim_on(&key, LONG, |_| ());
        assert_eq!(cluster.ask_owner(name, &format!("SET {name} theirs NX PX 30000")).unwrap(), "OK");
        let (first, second) = (claim(), claim());
        drop(stand(&one, &first).await);
        drop(stand(&two, &second).await);
        assert_eq!(cluster.ask_owner(name, &format!("GET {name}")).unwrap(), "theirs");
        cluster.ask_owner(name, &format!("DEL {name}")).unwrap();
        let hold = wait(&one, &first, LONG).await;
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
        let hold = wait(&two, &second, LONG).await;
        assert_eq!(two.release(&hold).await.unwrap(), Released::Released);
        // The memory of foreign clients ends by itself.
        assert_eq!(cluster.ask_owner(name, "KEYS *stock:42*").unwrap(), memory);
        cluster.ask_owner(name, &format!("DEL {memory}")).unwrap();
    }
    let error = Registry::new().connect("java", &format!("{}?layout=redisson", cluster.url())).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redissons_layout_works_behind_sentinels() {
    let set = blocking(|| RedisSentinels::start(1, 60_000, false, &[]).unwrap()).await;
    let bench = Bench::new();
    let (one, two) = (redisson(set.url()).await, redisson(set.url()).await);
    let hold = take(&one, &bench.claim(LONG)).await;
    assert_eq!(set.servers[0].ask(&format!("HLEN {}", bench.name)).unwrap(), "1");
    let claim = bench.claim(SECOND);
    drop(stand(&two, &claim).await);
    one.release(&hold).await.unwrap();
    let hold = wait(&two, &claim, LONG).await;
    assert_eq!(two.release(&hold).await.unwrap(), Released::Released);
}
