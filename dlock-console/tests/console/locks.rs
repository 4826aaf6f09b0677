//! The locks of a store, page by page.

use std::collections::HashSet;

use axum::Router;
use dlock::{Key, Registry, Wait};
use dlock_testkit::servers::{Instance, Redis};
use serde_json::Value;

use crate::live::{Page, console, memory};

fn keys(told: &Value) -> Vec<String> {
    told["locks"].as_array().unwrap().iter().map(|lock| lock["key"].as_str().unwrap().to_owned()).collect()
}

fn has_keys(wanted: &'static [&'static str]) -> impl Fn(&Value) -> bool {
    move |told| told["error"].is_null() && keys(told) == wanted
}

#[tokio::test]
async fn a_lock_is_shown_while_it_is_held() {
    let registry = memory();
    let router = console(&registry).router();
    let mut page = Page::open(&router, "").await;
    page.until("locks", has_keys(&[])).await;
    let guard = registry.lock(Key::text("stock:").value(&42)).name("shop::sell").acquire().await.unwrap();
    let told = page.until("locks", has_keys(&["stock:<42>"])).await;
    let lock = &told["locks"][0];
    let holder = &lock["holders"][0];
    assert_eq!(
        (holder["pid"].as_u64(), holder["function"].as_str()),
        (Some(std::process::id().into()), Some("shop::sell"))
    );
    let id = registry.held()[0].id.to_string();
    assert_eq!((holder["hold"].as_str(), &holder["foreign"]), (Some(&*id), &Value::Null));
    assert_eq!((lock["name"].as_str(), lock["waiters"].as_u64()), (Some("dl1:default:stock:<42>"), Some(0)));
    guard.release().await.unwrap();
    page.until("locks", has_keys(&[])).await;
}

#[tokio::test]
async fn text_of_strangers_cannot_end_an_event() {
    let registry = memory();
    let router = console(&registry).election("main", "a\n\nevent: about\ndata: {}").router();
    let key = Key::text("x:").value("<script>alert(1)</script>\n\nevent: locks\ndata: {}\u{202e}\"'&");
    let shown = key.to_string();
    let _guard = registry.lock(key).acquire().await.unwrap();
    let mut page = Page::open(&router, "").await;
    let told = page.until("locks", |told| !keys(told).is_empty()).await;
    assert_eq!(keys(&told), [shown]);
    let told = page.until("leaders", |_| true).await;
    assert_eq!(told["elections"][0]["election"], "a\n\nevent: about\ndata: {}");
}

/// Each page has its locks, and together they have all of them, each once.
async fn all_pages(router: &Router, query: &str) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let mut page = Page::open(router, &format!("{query}&after={after}")).await;
        let told = page.until("locks", |told| told["error"].is_null()).await;
        assert!(keys(&told).len() <= 50 && told.to_string().len() < 50_000);
        all.extend(keys(&told));
        let Some(next) = told["next"].as_str() else { return all };
        after = next.bytes().map(|byte| format!("%{byte:02x}")).collect();
    }
}

#[tokio::test]
async fn many_locks_come_page_by_page_and_by_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::new();
    registry.connect("main", &format!("sqlite://{}/locks.db", folder.path().display())).await.unwrap();
    let router = console(&registry).router();
    let mut guards = Vec::new();
    for number in 0..120 {
        guards.push(registry.lock(Key::text("a:").value(&number)).acquire().await.unwrap());
    }
    guards.push(registry.lock("b").acquire().await.unwrap());
    let all = all_pages(&router, "prefix=").await;
    assert_eq!((all.len(), all.iter().collect::<HashSet<_>>().len()), (121, 121));
    assert_eq!(all_pages(&router, "prefix=a:").await.len(), 120);
    assert_eq!(all_pages(&router, "prefix=b").await, ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_locks_are_one_short_page() {
    let registry = memory();
    let router = console(&registry).router();
    let mut guards = Vec::new();
    for number in 0..100_000 {
        let lock = registry.lock(Key::text("many:").value(&number)).ttl(std::time::Duration::from_secs(3600));
        guards.push(lock.acquire().await.unwrap());
    }
    let mut page = Page::open(&router, "").await;
    let told = page.until("locks", |told| told["error"].is_null()).await;
    assert_eq!(keys(&told).len(), 50);
    assert!(told["next"].is_string() && told.to_string().len() < 50_000);
    let told = page.until("here", |told| told["count"] == 100_000).await;
    assert!(told["held"].as_array().unwrap().len() <= 50);
    let told = page.until("activity", |_| true).await;
    assert!(told.to_string().len() < 200_000, "{}", told.to_string().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_waiters_are_counted() {
    let registry = memory();
    let router = console(&registry).router();
    let guard = registry.lock("hot").name("hot").acquire().await.unwrap();
    let waiting: Vec<_> = (0..10_000)
        .map(|_| {
            let lock = registry.lock("hot").name("hot").wait(Wait::Forever);
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    let mut page = Page::open(&router, "").await;
    let is_hot = |told: &Value| told["names"][0]["waiting"] == 10_000;
    let told = page.until("activity", is_hot).await;
    assert_eq!((told["names"][0]["name"].as_str(), told["names"][0]["held"].as_u64()), (Some("hot"), Some(1)));
    assert!(told.to_string().len() < 10_000);
    let told = page.until("locks", |told| told["locks"][0]["key"] == "hot").await;
    assert!(told.to_string().len() < 2_000, "{told}");
    let told = page.until("here", |told| told["waited"][0]["waiters"] == 10_000).await;
    assert_eq!((&told["waited"][0]["key"], &told["waited_count"]), (&"hot".into(), &1.into()));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_of_another_program_is_shown_as_such() {
    let server = Instance::start(Redis::default()).unwrap();
    server.ask("SET stock:42 a-secret NX PX 3600000").unwrap();
    let registry = Registry::new();
    registry.connect("main", &format!("{}?keys=literal", server.url())).await.unwrap();
    let router = console(&registry).router();
    let mut page = Page::open(&router, "").await;
    let told = page.until("locks", has_keys(&["stock:42"])).await;
    let holder = &told["locks"][0]["holders"][0];
    assert!(holder["foreign"].as_str().unwrap().contains("foreign client"), "{told}");
    assert!(holder["hold"].is_null() && !told.to_string().contains("a-secret"), "{told}");
}

#[tokio::test]
async fn a_store_that_goes_away_is_told_and_comes_back_by_itself() {
    let server = Instance::start(Redis { aof_always: true, ..Redis::default() }).unwrap();
    let registry = Registry::new();
    // The guards would last as long as the longest ttl: an hour.
    registry.connect("main", &format!("{}?restart_guard=off&failover_guard=off", server.url())).await.unwrap();
    let router = console(&registry).router();
    let _guard = registry.lock("kept").ttl(std::time::Duration::from_secs(3600)).acquire().await.unwrap();
    let mut page = Page::open(&router, "store=main").await;
    page.until("locks", has_keys(&["kept"])).await;
    page.until("stores", |told| told["stores"][0]["version"].is_string()).await;
    server.kill9().unwrap();
    let told = page.until("locks", |told| told["error"].is_string()).await;
    assert!(told["error"].as_str().unwrap().contains("main"), "{told}");
    page.until("stores", |told| told["stores"][0]["error"].is_string()).await;
    server.restart().unwrap();
    page.until("locks", has_keys(&["kept"])).await;
    page.until("stores", |told| told["stores"][0]["version"].is_string()).await;
}

#[tokio::test]
async fn a_guard_that_keeps_grants_back_is_told() {
    let server = Instance::start(Redis::default()).unwrap();
    let registry = Registry::new();
    registry.connect("main", &format!("{}?restart_guard=10m", server.url())).await.unwrap();
    let router = console(&registry).router();
    let mut page = Page::open(&router, "store=main").await;
    let told = page.until("stores", |told| told["stores"][0].is_object()).await;
    assert!(told["stores"][0]["error"].as_str().is_some_and(|error| error.contains("restart_guard")), "{told}");
}

/// Two processes of another service wait in the store's queue. This process knows neither.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_of_other_processes_are_counted() {
    let server = Instance::start(Redis::default()).unwrap();
    let mut registries = Vec::new();
    for _ in 0..4 {
        let registry = Registry::new();
        registry.connect("main", &server.url()).await.unwrap();
        registries.push(registry);
    }
    let [seen, holder, waiters @ ..] = &registries[..] else { unreachable!() };
    let router = console(seen).router();
    let guard = holder.lock("elsewhere").acquire().await.unwrap();
    let waiting = waiters.iter().map(|waiter| tokio::spawn(waiter.lock("elsewhere").wait(Wait::Forever).acquire()));
    let waiting: Vec<_> = waiting.collect();
    let mut page = Page::open(&router, "").await;
    let told = page.until("locks", |told| told["locks"][0]["waiters"] == 2).await;
    assert_eq!((keys(&told), &told["locks"][0]["holder_count"]), (vec!["elsewhere".to_owned()], &1.into()));
    let told = page.until("here", |_| true).await;
    assert_eq!((&told["count"], &told["waited_count"]), (&0.into(), &0.into()));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    guard.release().await.unwrap();
}
