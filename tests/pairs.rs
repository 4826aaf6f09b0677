//! Stores that are made of installed stores, as programs connect to them: by URL and from the environment.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dlock::backends::memory::Memory;
use dlock::backends::paired::{GateDown, Paired};
use dlock::{ErrorKind, Guard, Mode, Registry, Wait};
use dlock_contract::{
    Attempt, Backend, Claim, Fencing, Health, Hold, LockKey, LockState, Profile, Queue, Released, Result, Standing,
};
use dlock_testkit::servers::shared;
use dlock_testkit::slips::assert_hidden;
use futures::executor::block_on;
use futures::future::BoxFuture;

/// The limit for events that normally take a moment. It is long, because the machine may be busy.
const SOON: Duration = Duration::from_secs(20);

const PAIR: &str = "paired://?gate=quick&authority=sure";

/// A registry with two stores.
fn registry() -> Registry {
    let registry = Registry::new();
    block_on(registry.connect("quick", "memory://")).unwrap();
    block_on(registry.connect("sure", "memory://")).unwrap();
    registry
}

fn refusal(url: &str) -> dlock::Error {
    block_on(registry().connect("pair", url)).unwrap_err()
}

#[test]
fn a_pair_is_made_of_the_stores_that_it_names() {
    let registry = registry();
    block_on(registry.connect("pair", PAIR)).unwrap();
    block_on(registry.connect("both", "migrating://?old=quick&new=sure")).unwrap();
    let try_in = |store: &str| registry.lock("job").backend(store).wait(Wait::None);
    for made in ["pair", "both"] {
        let guard = try_in(made).acquire_blocking().unwrap();
        for member in ["quick", "sure"] {
            let busy = try_in(member).acquire_blocking().unwrap_err();
            assert_eq!(*busy.kind(), ErrorKind::Busy, "{made}, {member}");
        }
        block_on(guard.release()).unwrap();
        for member in ["quick", "sure"] {
            block_on(try_in(member).acquire_blocking().unwrap().release()).unwrap();
        }
    }
    assert_eq!(block_on(registry.ready("pair")).unwrap().to_string(), "ready");
}

#[test]
fn a_call_inside_of_a_pair_does_not_wait_for_itself_in_one_of_its_stores() {
    let registry = registry();
    block_on(registry.connect("pair", PAIR)).unwrap();
    block_on(registry.connect("both", "migrating://?old=quick&new=sure")).unwrap();
    let nested = [
        ("pair", "quick"),
        ("pair", "sure"),
        ("sure", "pair"),
        ("both", "quick"),
        ("both", "sure"),
        ("quick", "both"),
        ("sure", "both"),
    ];
    for (outer, inner) in nested {
        let asks = registry.lock("job").backend(inner).wait(Wait::UpTo(SOON));
        let told = registry.lock("job").backend(outer).run_blocking(|_| asks.acquire_blocking().map(drop)).unwrap();
        let error = told.unwrap_err();
        assert_eq!((error.kind(), error.backend()), (&ErrorKind::WouldDeadlock, Some(inner)), "{outer}: {error}");
        assert!(error.to_string().contains(outer), "{error}");
    }
}

#[test]
fn a_url_that_names_no_two_stores_is_refused() {
    let error = refusal("paired://?gate=quick&authority=nobody");
    assert_eq!(*error.kind(), ErrorKind::BackendNotRegistered { known: vec!["quick".into(), "sure".into()] });
    assert!(error.message().contains("installed: quick, sure"), "{error}");
    // A store that is not made yet is no member of itself.
    let itself = refusal("paired://?gate=pair&authority=sure");
    assert!(matches!(itself.kind(), ErrorKind::BackendNotRegistered { .. }), "{itself}");
    for (url, words) in [
        ("paired://?gate=sure&authority=sure", "they are the same one"),
        ("migrating://?old=sure&new=sure", "they are the same one"),
        ("paired://?gate=quick", "the parameter `authority` is missing"),
        ("migrating://?new=sure", "the parameter `old` is missing"),
        ("paired://host/?gate=quick&authority=sure", "no host, user or path"),
        ("paired://?gate=quick&authority=sure&gate_down=never", "`gate_down` in a paired URL is `fail` or `authority`"),
        ("paired://?gate=quick&authority=sure&numbers=new", "the parameter `numbers` of a paired URL is unknown"),
        ("migrating://?old=quick&new=sure&numbers=both", "`numbers` in a migrating URL is `old` or `new`"),
    ] {
        let error = refusal(url);
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
        assert!(error.message().contains(words), "{url}: {error}");
    }
}

/// One store under two names is one store.
#[test]
fn two_names_of_one_store_are_no_pair() {
    let registry = Registry::new();
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    registry.install_shared("quick", store.clone()).unwrap();
    registry.install_shared("sure", store).unwrap();
    assert!(block_on(registry.connect("pair", PAIR)).unwrap_err().message().contains("the same one"));
}

/// One server and one namespace under two URLs. Where each holds what the other one holds, a migration would call its own
/// holds lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_urls_of_one_store_are_no_pair() {
    let urls = tokio::task::spawn_blocking(|| {
        let servers = shared();
        [
            servers.redis().unwrap(),
            servers.etcd().unwrap().replace("http://", "etcd://"),
            servers.zookeeper().unwrap(),
            servers.consul().unwrap(),
            servers.postgres().unwrap(),
            format!("{}?way=named", servers.mariadb().unwrap()),
        ]
    });
    for url in urls.await.unwrap() {
        let registry = Registry::new();
        registry.configure(|defaults| defaults.namespace = format!("twins-{:016x}", fastrand::u64(..))).unwrap();
        registry.connect("quick", &url).await.unwrap();
        registry.connect("sure", &url.replace("127.0.0.1", "localhost")).await.unwrap();
        for (made, option) in [(PAIR, "authority"), ("migrating://?old=quick&new=sure", "new")] {
            let error = registry.connect("pair", made).await.expect_err(&url);
            assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == option), "{url}: {error:?}");
            assert!(error.message().contains("the same one"), "{url}: {error}");
        }
        // A pair that has this store as its gate keeps it out by itself.
        registry.connect("other", "memory://").await.unwrap();
        registry.connect("gated", "paired://?gate=quick&authority=other").await.unwrap();
        let error = registry.connect("both", "migrating://?old=sure&new=gated").await.expect_err(&url);
        assert!(error.message().contains("the same one"), "{url}: {error}");
    }
}

/// Two databases of one Redis are two stores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_of_one_server_are_a_pair() {
    let url = tokio::task::spawn_blocking(|| shared().redis().unwrap()).await.unwrap();
    let registry = Registry::new();
    registry.connect("quick", &url).await.unwrap();
    registry.connect("sure", &format!("{}/1", url.trim_end_matches('/'))).await.unwrap();
    registry.connect("both", "migrating://?old=quick&new=sure").await.unwrap();
}

#[test]
fn no_error_about_such_a_url_shows_what_was_written_into_it() {
    let urls = ["paired://user:{}@host/?gate=quick&authority=sure", "migrating://?old={}&new={}"];
    // The name of a store that is not installed is shown, so only URLs that cannot be read are tried.
    assert_hidden(&urls, |url| {
        let registry = registry();
        match block_on(registry.connect("pair", url)) {
            Err(error) if matches!(error.kind(), ErrorKind::BackendNotRegistered { .. }) => Ok("a name"),
            Err(error) => Err(error),
            Ok(()) => Ok("a pair"),
        }
    });
}

#[test]
fn an_option_that_one_of_the_two_stores_lacks_is_refused_before_any_request() {
    let registry = registry();
    block_on(registry.connect("pair", PAIR)).unwrap();
    block_on(registry.connect("loose", &format!("{PAIR}&gate_down=authority"))).unwrap();
    // Both are memory, which can do it, and the pair too.
    let reader = registry.lock("book").backend("pair").mode(Mode::Read).acquire_blocking().unwrap();
    block_on(reader.release()).unwrap();
    block_on(registry.lock("book").backend("pair").fair(true).acquire_blocking().unwrap().release()).unwrap();
    let refused = registry.lock("book").backend("loose").fair(true).acquire_blocking().unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Unsupported { .. }), "{refused}");
    // A file polls, and knows no order.
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite://{}", folder.path().join("locks.db").display());
    block_on(registry.connect("file", &file)).unwrap();
    block_on(registry.connect("ordered", "migrating://?old=quick&new=file")).unwrap();
    let refused = registry.lock("book").backend("ordered").fair(true).acquire_blocking().unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Unsupported { .. }), "{refused}");
}

/// Memory, which counts how often it is closed and asked for a lock.
struct Counting {
    memory: Memory,
    profile: Profile,
    closed: Arc<AtomicUsize>,
    attempts: Arc<AtomicUsize>,
}

impl Counting {
    fn new(closed: &Arc<AtomicUsize>) -> Self {
        let (memory, closed) = (Memory::new(), closed.clone());
        Self { profile: memory.profile().clone(), memory, closed, attempts: Arc::default() }
    }

    /// Memory that says that it has no readers and no fencing tokens.
    fn poor(attempts: &Arc<AtomicUsize>) -> Self {
        let mut poor = Self::new(&Arc::default());
        (poor.profile.read_write, poor.profile.fencing) = (false, Fencing::None);
        Self { attempts: attempts.clone(), ..poor }
    }
}

impl Backend for Counting {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        self.memory.try_acquire(claim, queue)
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        self.memory.renew(holds)
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        self.memory.release(hold)
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        self.memory.abandon(claim)
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        self.memory.look(key)
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        self.memory.ready()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.closed.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {})
    }
}

#[test]
fn a_shutdown_closes_each_store_once() {
    let closed: [Arc<AtomicUsize>; 2] = Default::default();
    let store = |number: usize| Counting::new(&closed[number]);
    let counts = || [0, 1].map(|number: usize| closed[number].load(Ordering::SeqCst));
    let registry = Registry::new();
    registry.install("quick", store(0)).unwrap();
    registry.install("sure", store(1)).unwrap();
    block_on(registry.connect("pair", PAIR)).unwrap();
    block_on(registry.connect("both", "migrating://?old=quick&new=sure")).unwrap();
    block_on(registry.shutdown(Duration::from_secs(1)));
    assert_eq!(counts(), [1, 1]);
    // Stores that nobody else has are closed with the pair.
    let registry = Registry::new();
    let pair = Paired::builder(Arc::new(store(0)), Arc::new(store(1))).gate_down(GateDown::Authority).build().unwrap();
    registry.install("pair", pair).unwrap();
    block_on(registry.shutdown(Duration::from_secs(1)));
    assert_eq!(counts(), [2, 2]);
}

#[dlock::distributed_lock(key = "book", mode = read, backend = "poor")]
async fn reads_where_the_authority_has_no_readers() -> Result<()> {
    Ok(())
}

#[dlock::distributed_lock(key = "ledger", fence = token, backend = "poor")]
async fn writes_where_the_authority_has_no_tokens() -> Result<()> {
    panic!("it ran, with token {token}")
}

/// Whatever the gate can do, the authority decides.
#[tokio::test]
async fn a_pair_whose_authority_lacks_a_lock_mode_or_the_fence_refuses_them_and_verify_names_the_functions() {
    let attempts = Arc::default();
    let gate = Counting { attempts: Arc::clone(&attempts), ..Counting::new(&Arc::default()) };
    let pair = Paired::builder(Arc::new(gate), Arc::new(Counting::poor(&attempts))).build().unwrap();
    dlock::install("poor", pair).unwrap();
    for end in [reads_where_the_authority_has_no_readers().await, writes_where_the_authority_has_no_tokens().await] {
        let error = end.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
        assert_eq!(error.attempts(), 0, "{error}");
    }
    assert_eq!(attempts.load(Ordering::SeqCst), 0);
    let unusable = dlock::verify().unwrap_err();
    let mut named: Vec<_> = unusable.iter().map(|(site, _)| site.name().to_owned()).collect();
    named.sort();
    let name = |function: &str| format!("pairs::{function}");
    let expected = ["reads_where_the_authority_has_no_readers", "writes_where_the_authority_has_no_tokens"].map(name);
    assert_eq!(named, expected, "{unusable}");
}

/// Two real stores as one: both are taken, the tokens rise, a waiter comes next, and a loss in the second is a loss.
async fn two_stores_work_as_one(made: &str, number: usize, [gate, authority]: [String; 2]) {
    let registry = Registry::new();
    // A server is locked in one way for each namespace.
    let namespace = format!("pairs-{number}-{:016x}", fastrand::u64(..));
    registry.configure(|defaults| defaults.namespace = namespace).unwrap();
    for (name, url) in [("quick", &*gate), ("sure", &authority), ("pair", made)] {
        registry.connect(name, url).await.unwrap_or_else(|error| panic!("{gate} before {authority}, {name}: {error}"));
    }
    let lock = |store: &str| registry.lock("job").backend(store).ttl(Duration::from_secs(10));
    let token = |guard: &Guard| guard.fence().unwrap().get();
    let first = lock("pair").acquire().await.unwrap();
    for member in ["quick", "sure"] {
        let busy = lock(member).try_acquire().await.unwrap_err();
        assert_eq!(*busy.kind(), ErrorKind::Busy, "{gate} before {authority}: {member} is free");
    }
    let id = lock("sure").holders().await.unwrap().holders[0].id.unwrap();
    let waiter = tokio::spawn(lock("pair").wait(Wait::UpTo(SOON)).acquire());
    let before = token(&first);
    first.release().await.unwrap();
    let second = waiter.await.unwrap().unwrap_or_else(|error| panic!("{gate} before {authority}: {error}"));
    assert!(token(&second) > before, "{gate} before {authority}");
    let id_of_second = lock("sure").holders().await.unwrap().holders[0].id.unwrap();
    assert_ne!(id, id_of_second);
    assert!(lock("sure").break_hold(id_of_second).await.unwrap());
    let lost = tokio::time::timeout(SOON, second.lost()).await;
    assert!(lost.unwrap_or_else(|_| panic!("{gate} before {authority}: the loss was not told")).is_lost());
    drop(second);
    for member in ["quick", "sure"] {
        let free = lock(member).wait(Wait::UpTo(SOON)).acquire().await;
        free.unwrap_or_else(|error| panic!("{gate} before {authority}: {error}")).release().await.unwrap();
    }
    registry.shutdown(Duration::from_secs(5)).await;
}

/// Each kind of server is the first and the second store of some two.
async fn every_kind_of_server_is_each_store_of(made: &str) {
    let urls = tokio::task::spawn_blocking(|| {
        let servers = shared();
        let named = |url: String| format!("{url}?way=named");
        let etcd = servers.etcd().unwrap().replace("http://", "etcd://");
        let consul = format!("{}?lock_delay=0s", servers.consul().unwrap());
        let zookeeper = servers.zookeeper().unwrap();
        [
            [servers.redis().unwrap(), etcd.clone()],
            [etcd, zookeeper.clone()],
            [zookeeper, consul.clone()],
            [consul, servers.postgres().unwrap()],
            // Both are sessions.
            [named(servers.mysql().unwrap()), named(servers.postgres().unwrap())],
        ]
    });
    let urls = urls.await.unwrap().into_iter().enumerate();
    futures::future::join_all(urls.map(|(number, urls)| two_stores_work_as_one(made, number, urls))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_server_can_be_a_gate_or_an_authority() {
    every_kind_of_server_is_each_store_of(PAIR).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_server_can_be_the_old_or_the_new_store() {
    every_kind_of_server_is_each_store_of("migrating://?old=quick&new=sure").await;
}

const CHILD: &str = "DLOCK_PAIRS_TEST_CHILD";

/// Something only in the process that the next test starts.
#[test]
fn child_that_connects_from_its_environment() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    match block_on(dlock::connect_from_env()) {
        Ok(names) => println!("connected: {}", names.join(" ")),
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn the_order_of_variables_does_not_matter() {
    let connected = |variables: &[(&str, &str)]| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child_that_connects_from_its_environment", "--nocapture"]);
        let output = command.env(CHILD, "1").envs(variables.iter().copied()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // By their names the pair would be opened before its stores, and a migration to it before the pair.
    let quick_and_sure = [("DLOCK_URL_QUICK", "memory://"), ("DLOCK_URL_SURE", "memory://")];
    let pair = ("DLOCK_URL_B", PAIR);
    let migration = ("DLOCK_URL_A", "migrating://?old=old&new=b");
    let old = ("DLOCK_URL_OLD", "memory://");
    let said = connected(&[&quick_and_sure[..], &[pair, migration, old, ("DLOCK_DEFAULT", "a")]].concat());
    assert!(said.contains("connected: a b old quick sure"), "{said}");
    let said = connected(&[("DLOCK_URL_A", "paired://?gate=b&authority=c"), pair]);
    assert!(said.contains("refused: no backend is installed under the name"), "{said}");
    let circle = [("DLOCK_URL_A", "paired://?gate=b&authority=c"), ("DLOCK_URL_B", "paired://?gate=a&authority=c")];
    let said = connected(&circle);
    assert!(said.contains("made of each other: DLOCK_URL_A, DLOCK_URL_B"), "{said}");
}
