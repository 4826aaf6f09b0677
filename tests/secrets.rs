//! A canary in the place of a password: nothing that anybody prints, raises or logs may show it.

use std::error::Error as StdError;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use dlock::{Backoff, Error, Event, Label, Observer, Registry, Retry, Wait};
use dlock_testkit::Log;
use dlock_testkit::servers::{Consul, Etcd, Instance, MariaDb, Postgres, Redis, ZooKeeper};
use futures::FutureExt;

/// Spelt so that no other text holds it, also in part, in other letters, or percent-encoded.
const CANARY: &str = "xCanaryBirdx";

/// Everything that was written anywhere.
#[derive(Clone, Default)]
struct Heard(Log);

impl Observer for Heard {
    fn on_event(&self, label: &Label, event: &Event) {
        self.note(&format!("{label:?} {event:?}"));
    }
}

impl Heard {
    fn note(&self, text: &str) {
        writeln!(self.0.clone(), "{text}").unwrap();
    }

    /// An error in all of its forms, with all of its causes.
    fn note_error(&self, error: &Error) {
        let mut cause: Option<&dyn StdError> = Some(error);
        while let Some(error) = cause {
            self.note(&format!("{error}\n{error:?}\n{error:#?}"));
            cause = error.source();
        }
    }

    fn assert_no_canary(&self, context: &str) {
        let text = self.0.text();
        let bytes: String = CANARY.bytes().map(|byte| format!("{byte}, ")).collect();
        for form in [CANARY.to_lowercase(), bytes[..20].to_owned()] {
            let line = text.lines().find(|line| line.to_lowercase().contains(&form));
            assert!(line.is_none(), "{context}: the password is in: {}", line.unwrap_or_default());
        }
    }
}

/// Parts of a URL that may hold a secret, rightly or by mistake. `{}` is the canary. The place of the host is none of them: it is
/// looked up, so the resolver has seen it already, and an error that does not name it helps nobody.
const URLS: &[&str] = &[
    "redis://:{}@127.0.0.1:1/",
    "redis://user:{}@127.0.0.1:1/0",
    "redis://user:{}@127.0.0.1:1/?password={}&{}={}",
    "redis://user:{}@127.0.0.1:notaport/",
    "redis://user:{}@[::1/",
    "redis://user:{}@/",
    "rediss://user:{}@127.0.0.1:1/",
    "rediss://user:{}@127.0.0.1:1/#{}",
    "unix:///nowhere/redis.sock?pass={}",
    "redis+unix:///nowhere/redis.sock?user=u&pass={}&{}=1",
    "redlock://user:{}@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/",
    "redlock://:{}@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/?max_ttl={}",
    "redlock://:{}@127.0.0.1:1,127.0.0.1:2/",
    "redlock://:{}@127.0.0.1:1,127.0.0.1:2,127.0.0.1:1/",
    "redlock://u:{}@127.0.0.1:1,u:{}@127.0.0.1:2,u:{}@127.0.0.1:3/",
    "redlock://user:a,{}@127.0.0.1:1,127.0.0.1:2/",
    "redlock://user:{},@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/{}",
    "redlock://user:{}#@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
    "redlock://user:%78CanaryBirdx@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/?{}",
    "rediss://user:{}@127.0.0.1:1/?ca=/nowhere/{}",
    "redis://{}@127.0.0.1:1/",
    "redis-sentinel://user:{}@127.0.0.1:1,127.0.0.1:2/main/0?sentinel_password={}",
    "redis-sentinel://user:{}@127.0.0.1:1/main/{}",
    "redis-sentinel://127.0.0.1:1/main?x={}&{}",
    "redis-sentinel://127.0.0.1:1,{}:x/main",
    "redis-cluster://user:{}@127.0.0.1:1,127.0.0.1:2",
    "redis-cluster://user:{}@127.0.0.1:1/{}",
    "redis-cluster://user:a@{}@127.0.0.1:1",
    "rediss-cluster://user:{}@127.0.0.1:1?key={}",
    "redis-cluster://user:%78CanaryBirdx@127.0.0.1:1",
    "mysql://user:{}@127.0.0.1:1/db",
    "mysql://user:{}@127.0.0.1:1/db?password={}",
    "mysql://user:{}@127.0.0.1:1/db?ssl-mode=none&x={}&{}",
    "mysql://user:{}@127.0.0.1:99999/db",
    "mysql://user:{}%@127.0.0.1:1/db",
    "mysql://user:{}@127.0.0.1:1/db?socket=/nowhere/{}",
    "mysql://user:a/{}@127.0.0.1:1/db",
    "mariadb://user:{}@127.0.0.1:1/db",
    "sqlite:///nowhere/at/all.db?password={}",
    "sqlite://?key={}",
    "memory://user:{}@here",
    "memory://?password={}",
    "etcd://user:{}@127.0.0.1:1",
    "etcd://user:{}@127.0.0.1:1/?password={}",
    "etcd://user:{}@",
    "etcd://{}:x@127.0.0.1:1",
    "zk://user:{}@127.0.0.1:1",
    "zk://user:{}@127.0.0.1:1/app?acl={}",
    "zk://user:{}@127.0.0.1:1/{}//x",
    "zk://user:{}@db.example:1",
    "zk://user:{}@127.0.0.1:1?tls=verify&ca=/nowhere/{}",
    "zk://us:{}:er@127.0.0.1:1/zookeeper",
    "zk://{}@127.0.0.1:1",
    "zk://user:%78CanaryBirdx@127.0.0.1:1",
    "consul://:{}@127.0.0.1:1",
    "consul://{}@127.0.0.1:1",
    "consul://:{}@127.0.0.1:1?token={}",
    "consul://127.0.0.1:1?token_file=/nowhere/{}",
    "consul://:{}@consul.invalid?lock_delay={}",
    "postgres://user:{}@127.0.0.1:1/db",
    "{}://user:{}@host",
    "{}",
    "user:{}@host",
    "://{}",
    "redis:/user:{}@host",
    "redis://user:%78CanaryBirdx@127.0.0.1:1/",
    "mysql://user:%78CanaryBirdx@127.0.0.1:1/db",
    "etcd://user:%78CanaryBirdx@127.0.0.1:1",
];

fn heard() -> &'static Heard {
    static HEARD: std::sync::LazyLock<Heard> = std::sync::LazyLock::new(|| {
        let heard = Heard::default();
        let log = heard.0.clone();
        // The loudest log there is, of our crates and of the clients' alike.
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || log.clone()).init();
        let panics = heard.clone();
        panic::set_hook(Box::new(move |info| {
            panics.note(&info.to_string());
            eprintln!("{info}");
        }));
        heard
    });
    &HEARD
}

#[tokio::test]
async fn no_url_shows_its_password() {
    let heard = heard();
    for url in URLS {
        let url = url.replace("{}", CANARY);
        let registry = Registry::new();
        registry.observe(heard.clone());
        let connecting = tokio::time::timeout(Duration::from_secs(20), registry.connect("store", &url));
        match AssertUnwindSafe(connecting).catch_unwind().await {
            Ok(Ok(Ok(()))) => panic!("a URL without a server was taken: {}", url.replace(CANARY, "…")),
            Ok(Ok(Err(error))) => heard.note_error(&error),
            Ok(Err(elapsed)) => heard.note(&elapsed.to_string()),
            // The hook has its words.
            Err(_) => panic!("a panic, not an error"),
        }
        heard.note(&format!("{registry:?} {registry:#?}"));
        heard.assert_no_canary(&url.replace(CANARY, "…"));
    }
}

/// Servers that refuse a wrong password, take the right one, and then go away. Side by side, since each test waits for the end of
/// a ttl.
mod a_store_in_use_shows_no_password {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn redis() {
        let redis = Instance::start(Redis::default()).unwrap();
        redis.ask(&format!("CONFIG SET requirepass {CANARY}")).unwrap();
        in_use(&[&redis], &|password| format!("redis://:{password}@{}/", redis.addr())).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn redlock() {
        let extra = || vec!["--requirepass".into(), CANARY.into()];
        let secured = || Redis { aof_always: true, extra: extra(), ..Redis::default() };
        let nodes = Instance::start_all([(); 3].map(|()| secured())).unwrap();
        let hosts: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
        let url = |password: &str| format!("redlock://:{password}@{}/", hosts.join(","));
        in_use(&nodes.iter().collect::<Vec<_>>(), &url).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mariadb() {
        let mariadb = Instance::start(MariaDb::default()).unwrap();
        mariadb.ask(&format!("CREATE USER me@'%' IDENTIFIED BY '{CANARY}'")).unwrap();
        mariadb.ask("GRANT ALL ON test.* TO me@'%'").unwrap();
        in_use(&[&mariadb], &|password| format!("mysql://me:{password}@{}/test", mariadb.addr())).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn postgres() {
        let postgres = Instance::start(Postgres::default()).unwrap();
        postgres.ask(&format!("CREATE ROLE me LOGIN PASSWORD '{CANARY}'")).unwrap();
        postgres.ask("GRANT CREATE ON SCHEMA public TO me").unwrap();
        let name = postgres.url().rsplit_once('/').unwrap().1.to_owned();
        in_use(&[&postgres], &|password| format!("postgres://me:{password}@{}/{name}", postgres.addr())).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn etcd() {
        let etcd = Instance::start(Etcd::default()).unwrap();
        etcd.ask(&format!(r#"/v3/auth/user/add {{"name":"root","password":"{CANARY}"}}"#)).unwrap();
        etcd.ask(r#"/v3/auth/user/grant {"user":"root","role":"root"}"#).unwrap();
        etcd.ask("/v3/auth/enable {}").unwrap();
        in_use(&[&etcd], &|password| format!("etcd://root:{password}@{}", etcd.addr())).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn zookeeper() {
        let zookeeper = Instance::start(ZooKeeper::default()).unwrap();
        let url = |password: &str| format!("zk://me:{password}@{}", zookeeper.addr());
        // ZooKeeper takes every password. The nodes of one account are not another's.
        Registry::new().connect("first", &url(CANARY)).await.unwrap();
        in_use(&[&zookeeper], &url).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn consul() {
        let token = format!(r#"-hcl=acl{{enabled=true default_policy="allow" tokens{{master="{CANARY}"}}}}"#);
        let consul = Instance::start(Consul { extra: vec![token], ..Consul::default() }).unwrap();
        in_use(&[&consul], &|token| format!("consul://:{token}@{}", consul.addr())).await;
    }
}

async fn in_use(servers: &[&Instance], url: &dyn Fn(&str) -> String) {
    let heard = heard();
    let registry = Registry::new();
    registry.observe(heard.clone());
    heard.note_error(&registry.connect("wrong", &url(&CANARY.repeat(2))).await.unwrap_err());
    registry.connect("store", &url(CANARY)).await.unwrap();
    registry.set_default("store").unwrap();
    // The test waits for the end of the ttl, so that is short, and a busy machine may need more than one attempt.
    let lock = || registry.lock("job").ttl(Duration::from_secs(3)).name("secrets");
    let retry =
        Retry { times: 100, backoff: Some(Backoff::new(Duration::from_millis(20), Duration::from_millis(200))) };
    let guard = lock().wait(Wait::UpTo(Duration::from_secs(60))).retry(retry).acquire().await.unwrap();
    heard.note(&format!("{guard:?} {:?} {:?} {:?} {registry:#?}", guard.fence(), lock(), lock().holders().await));
    heard.note_error(&lock().try_acquire().await.unwrap_err());
    servers.iter().for_each(|server| server.kill9().unwrap());
    heard.note_error(&guard.lost().await);
    heard.note_error(&lock().try_acquire().await.unwrap_err());
    let panicking = registry.clone();
    let panic = tokio::spawn(async move { panic!("{guard:?} {panicking:?}") }).await.unwrap_err();
    heard.note(&format!("{panic} {panic:?}"));
    heard.note(&format!("{:?}", registry.shutdown(Duration::ZERO).await));
    heard.assert_no_canary(&url("…"));
    assert!(heard.0.text().contains("renewal failed"), "the log was not listened to: nobody would hear a leak");
}
