//! The log lines about locks: each names the lock, its key, its store with host and port, and its hold. Of a key that is
//! `sensitive` neither the log nor an error shows more than a hash.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

use std::error::Error as StdError;
use std::sync::LazyLock;
use std::time::Duration;

use dlock::backends::memory::Memory;
use dlock::{Error, ErrorKind, Key, Lock, Registry, Wait, distributed_lock};
use dlock_testkit::servers::{self, Instance, shared};
use dlock_testkit::{Log, Mode, Proxy, wait_until};
use sqlx::Connection;

/// The lines of dlock and its stores, at every level. Those of client libraries belong to other people.
fn log() -> &'static Log {
    static LOG: LazyLock<Log> = LazyLock::new(|| {
        let log = Log::default();
        let writer = log.clone();
        // The targets that begin with it: all of our crates.
        tracing_subscriber::fmt()
            .with_env_filter("dlock=trace")
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .init();
        log
    });
    &LOG
}

/// Waits until there is a line for each word, with all of these texts in it: lines of our own thread come later.
async fn wait_for_lines(of: &[&str], words: &[&str]) {
    let is_in = |word: &&str| {
        let is_wanted = |line: &str| of.iter().all(|text| line.contains(text)) && line.contains(word);
        log().text().lines().any(is_wanted)
    };
    let what = format!("lines of {of:?} with {words:?}");
    if wait_until(&what, async || words.iter().all(is_in)).await.is_err() {
        panic!("no {what} in:\n{}", log().text());
    }
}

const SHORT: Wait = Wait::UpTo(Duration::from_millis(50));

/// The error of a wait that runs out. The store's first answer may come too late on a busy machine, and then it is an outage.
async fn timed_out<T>(wait: impl AsyncFn() -> dlock::Result<T>) -> Error {
    for _ in 0..10 {
        match wait().await.map(drop).unwrap_err() {
            error if *error.kind() == ErrorKind::Outage => {}
            error => return error,
        }
    }
    panic!("no wait had an answer in time: nothing is proven");
}

/// All that can happen to one lock, and its errors.
async fn story(registry: &Registry, backend: &str, make: impl Fn() -> Lock) -> Vec<Error> {
    let mut errors = Vec::new();
    let guard = make().acquire().await.unwrap();
    errors.push(make().wait(Wait::None).acquire().await.unwrap_err());
    errors.push(timed_out(async || make().wait(SHORT).acquire().await).await);
    // The error names what its caller holds.
    let outer = registry.lock("outer").backend(backend);
    let circle = outer.run(|_| timed_out(async || make().wait(SHORT).acquire().await));
    errors.push(circle.await.unwrap());
    let fence = guard.fence().ok();
    let shown = format!("{guard:?} {fence:?}");
    guard.release().await.unwrap();
    errors.push(make().run(|_| async { make().acquire().await }).await.unwrap().unwrap_err());
    let held = make().run(|_| async {
        let taken = registry.lock("taken").backend(backend).acquire().await.unwrap();
        let waits = async || dlock::inherit(registry.lock("taken").backend(backend).wait(SHORT).acquire()).await;
        let error = timed_out(waits).await;
        drop(taken);
        error
    });
    errors.push(held.await.unwrap());
    if can_break(registry, backend).await {
        let broken = make().acquire().await.unwrap();
        let id = make().holders().await.unwrap().holders[0].id.unwrap();
        assert!(make().break_hold(id).by("alice").because("web-3 hangs").await.unwrap());
        errors.push(broken.release().await.unwrap_err());
    }
    if let Some(fence) = fence {
        let newer = make().acquire().await.unwrap();
        let mut conn = sqlx::SqliteConnection::connect("sqlite::memory:").await.unwrap();
        dlock::fenced::sqlite::prepare(&mut conn).await.unwrap();
        dlock::fenced::sqlite::admit(&mut conn, &newer.fence().unwrap(), "resource").await.unwrap();
        errors.push(dlock::fenced::sqlite::admit(&mut conn, &fence, "resource").await.unwrap_err());
        newer.release().await.unwrap();
    }
    errors.push(make().backend("nobody").acquire().await.unwrap_err());
    errors.push(make().ttl(Duration::from_nanos(1)).acquire().await.unwrap_err());
    errors.push(Error::outage(shown));
    errors
}

async fn can_break(registry: &Registry, backend: &str) -> bool {
    registry.backend(Some(backend)).await.unwrap().inspect().is_some()
}

/// The errors with all of their causes, as anybody may print them.
fn printed(errors: &[Error]) -> String {
    let mut text = String::new();
    for error in errors {
        let chain = std::iter::successors(Some(error as &dyn StdError), |&error| error.source());
        chain.for_each(|error| text += &format!("{error}\n{error:?}\n"));
    }
    text
}

/// Each store in a registry of its own, its name there, and the servers of its URL. Two ways of one database need two namespaces.
async fn stores() -> Vec<(Registry, String, Vec<String>)> {
    let memory = Registry::new();
    memory.install("memory", Memory::new()).unwrap();
    let mut stores = vec![(memory, "memory".to_owned(), Vec::new())];
    for (at, url) in shared().stores().unwrap().iter().enumerate() {
        let (registry, name) = (Registry::new(), format!("store{at:02}"));
        registry.connect(&name, url).await.unwrap();
        let servers = url.split_once("://").unwrap().1.split(['/', '?']).next().unwrap();
        let servers = servers.split(',').map(|server| server.rsplit('@').next().unwrap().to_owned()).collect();
        stores.push((registry, name, servers));
    }
    for (registry, ..) in &stores {
        registry.configure(|defaults| defaults.namespace = format!("log{:08x}", fastrand::u32(..))).unwrap();
    }
    stores
}

#[tokio::test(flavor = "multi_thread")]
async fn each_line_about_a_lock_names_its_key_its_store_and_its_hold() {
    log();
    let stores = stores().await;
    let mut broken = 0;
    for (registry, backend, servers) in &stores {
        let make = || registry.lock(Key::text("shown:").value("Bob Ray")).backend(backend).name("stock-keeper");
        let errors = story(registry, backend, make).await;
        assert!(printed(&errors[..1]).contains("shown:<Bob%20Ray>"), "{}", printed(&errors));
        let is_broken = can_break(registry, backend).await;
        let backend = format!("backend=\"{backend}\"");
        let mut of = vec!["name=\"stock-keeper\"", "key=dl1:log", ":shown:<Bob%20Ray>", " hold=", &backend];
        // Redlock names all of its servers.
        of.extend(servers.iter().map(String::as_str));
        wait_for_lines(&of, &["acquired", "busy", "timed out", "released", "waited=", "held="]).await;
        if is_broken {
            broken += 1;
            wait_for_lines(&of, &["lost", "an operator has broken this hold", "record=\"by=alice"]).await;
            of.extend(["by=alice@", " took="]);
            wait_for_lines(&of, &["this process has broken a hold"]).await;
        }
    }
    assert!(broken >= 5, "{broken} of {} stores", stores.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sensitive_key_is_in_no_line_and_in_no_error() {
    log();
    for (registry, backend, _) in stores().await {
        let key = || Key::text("patient:").value("Ann Lee").and_text(":").value(&471_100_815_u64);
        let make = || registry.lock(key()).backend(&backend).sensitive();
        let errors = story(&registry, &backend, make).await;
        let note = {
            let _guard = make().acquire().await.unwrap();
            make().holders().await.unwrap().note().unwrap().to_string()
        };
        // printf %s 'patient:<Ann%20Lee>:<471100815>' | sha256sum | cut -c1-16
        let hash = "sha256:0ff897bd380f0273";
        wait_for_lines(
            &[&format!("backend=\"{backend}\""), &format!("key={hash}")],
            &["acquired", "released", "timed out"],
        )
        .await;
        if can_break(&registry, &backend).await {
            let of = [format!("backend=\"{backend}\""), format!("key={hash}")];
            wait_for_lines(&of.each_ref().map(String::as_str), &["lost", "this process has broken a hold"]).await;
        }
        let text = printed(&errors) + &note;
        assert!(errors[0].key() == Some(hash) && text.contains(&format!("itself holds {hash}")), "{text}");
        for part in ["patient", "Ann", "Lee", "471100815"] {
            assert!(!text.contains(part), "{part} in {text}");
        }
    }
    let log = log().text();
    let line = log.lines().find(|line| ["patient", "Ann", "Lee", "471100815"].iter().any(|part| line.contains(part)));
    assert_eq!(line, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_is_logged_by_its_name() {
    log();
    let registry = Registry::new();
    registry.install("memory", Memory::new()).unwrap();
    registry.elect("night billing").backend("memory").campaign().await.unwrap().resign().await.unwrap();
    wait_for_lines(&["name=\"night billing\"", "backend=\"memory\""], &["acquired", "released"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lines_of_an_outage_name_the_host() {
    log();
    let registry = Registry::new();
    let server = Instance::start(servers::Redis::default()).unwrap();
    registry.connect("down", &server.url()).await.unwrap();
    server.kill9().unwrap();
    let lock = registry.lock(Key::text("outage:").value("Eve Poe")).backend("down").wait(Wait::None);
    let error = lock.acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Outage, "{error}");
    let host = format!("host=\"127.0.0.1:{}", server.port());
    wait_for_lines(&["backend=\"down\"", &host, "reason="], &["WARN dlock: the store fails"]).await;
    wait_for_lines(&["key=dl1:default:outage:<Eve%20Poe>", &host, "kind=\"outage\"", "waited="], &["failed"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_about_a_refusal_has_the_code_of_the_server() {
    log();
    let registry = Registry::new();
    let server = Instance::start(servers::Redis::default()).unwrap();
    server.ask("ACL SETUSER app on >pw ~* &* +@all").unwrap();
    registry.connect("restricted", &server.url().replace("redis://", "redis://app:pw@")).await.unwrap();
    server.ask("ACL SETUSER app -eval -evalsha -set").unwrap();
    let error = registry.lock("refused").backend("restricted").acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (&ErrorKind::PermissionDenied, Some("NOPERM")), "{error}");
    wait_for_lines(&["backend=\"restricted\"", "code=\"NOPERM\"", "reason="], &["failed"]).await;
}

#[distributed_lock(key = "citizen:<name>", sensitive, backend = "attribute", wait = "none")]
async fn sensitive(name: &str) -> Result<(), Error> {
    other_call(name).await
}

/// By default the key is shown.
#[distributed_lock(key = "citizen:<name>", backend = "attribute", wait = "none", reentrant = false)]
async fn other_call(name: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "citizen:<name>", sensitive, backend = "attribute", wait = "none")]
async fn nested(name: &str) -> Result<(), Error> {
    sensitive(name).await
}

#[tokio::test]
async fn the_attribute_hides_a_key_that_is_sensitive_and_no_other() {
    dlock::install("attribute", Memory::new()).unwrap();
    let shown = sensitive("Cyd Fox").await.unwrap_err();
    assert!(matches!(shown.kind(), ErrorKind::WouldDeadlock) && shown.key().unwrap().contains("Cyd%20Fox"), "{shown}");
    let hidden = nested("Dee Roe").await.unwrap_err();
    assert!(hidden.key().unwrap().starts_with("sha256:") && !hidden.to_string().contains("Dee"), "{hidden}");
    let told = dlock::explain().to_string();
    let hidden = told.lines().filter(|line| line.split_whitespace().eq(["sensitive", "yes"])).count();
    assert_eq!(hidden, 2, "{told}");
}

#[distributed_lock(key = "untold:<id>", backend = "nowhere", on_busy = "skip")]
async fn cannot_tell(id: u32) {
    unreachable!("{id}: there is no such store");
}

/// In an outage all calls fail. The lines of single ones would fill the log.
#[tokio::test]
async fn errors_that_a_function_cannot_return_are_one_line_a_minute_for_each_store() {
    log();
    for id in 0..100 {
        cannot_tell(id).await;
    }
    let text = log().text();
    let of = |level: &str| {
        let is_meant = |line: &&str| line.contains(level) && line.contains("did not run to its end");
        text.lines().filter(is_meant).filter(|line| line.contains("nowhere")).count()
    };
    assert_eq!((of("ERROR"), of("DEBUG")), (1, 99));
}

const CHILD: &str = "DLOCK_LOG_TEST_CHILD";

/// The child of the next test: a service whose stores all fail for half a minute. It prints its lines from the level warn on, also
/// those of client libraries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_whose_stores_fail() {
    let Ok(urls) = std::env::var(CHILD) else { return };
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_env_filter("warn").with_ansi(false).with_writer(move || writer.clone()).init();
    let (mut proxies, mut stores, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for (at, url) in urls.split_whitespace().enumerate() {
        let (registry, name) = (Registry::new(), format!("store{at}"));
        registry.configure(|defaults| defaults.namespace = format!("log{:08x}", fastrand::u32(..))).unwrap();
        let (before, through) = Proxy::in_front_of_each(url).unwrap();
        registry.connect(&name, &through).await.unwrap();
        let lock = |key: &'static str| registry.lock(key).backend(&name).ttl(Duration::from_secs(9));
        held.push([lock("a").acquire().await.unwrap(), lock("b").acquire().await.unwrap()]);
        drop(tokio::spawn(lock("a").wait(Wait::Forever).acquire()));
        proxies.extend(before);
        stores.push((registry, name));
    }
    // About a hundred calls a second on each store, until each has this line.
    let call_until = async |line: &str| {
        let is_told =
            |name: &str| log.text().lines().any(|told| told.contains(&format!("{name:?}")) && told.contains(line));
        futures::future::join_all(stores.iter().map(async |(registry, name)| {
            while !is_told(name) {
                let call = || {
                    registry.lock("call").backend(name).wait(Wait::None).run(async |_| tokio::task::yield_now().await)
                };
                futures::future::join_all((0..10).map(|_| call())).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }))
        .await;
    };
    let story = async {
        proxies.iter().for_each(|proxy| proxy.set(Mode::Refuse));
        call_until("the store still fails").await;
        proxies.iter().for_each(|proxy| proxy.set(Mode::Pass));
        call_until("the store no longer fails").await;
    };
    let is_whole = tokio::time::timeout(Duration::from_secs(240), story).await.is_ok();
    println!("{}", log.text());
    assert!(is_whole, "a line never came");
}

/// Also with the lines of the stores' client libraries.
#[test]
fn an_outage_of_each_store_is_a_few_lines_in_the_log_of_a_whole_process() {
    let urls = shared().stores().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child_whose_stores_fail", "--nocapture"]).env(CHILD, urls.join(" "));
    let output = child.output().unwrap();
    let log = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{log}");
    let lines: Vec<_> =
        log.lines().filter(|line| [" WARN ", "ERROR "].iter().any(|level| line.contains(level))).collect();
    for (at, url) in urls.iter().enumerate() {
        let told: Vec<_> = lines.iter().filter(|line| line.contains(&format!("backend=\"store{at}\""))).collect();
        for text in ["the store fails", "the store still fails", "the store no longer fails"] {
            assert!(told.iter().any(|line| line.contains(text)), "{url}: {text}: {told:#?}");
        }
        // One for each cause of a loss. A slow machine may have a second outage, and one that lasts longer.
        let others = told.iter().filter(|line| !line.contains("the store still fails")).count();
        assert!(others <= 9, "{url}: {told:#?}");
    }
    // Redis tells once that it keeps no append-only file.
    let of_nobody: Vec<_> = lines.iter().filter(|line| !line.contains("backend=\"store")).collect();
    assert!(of_nobody.len() <= urls.len(), "{of_nobody:#?}");
}
