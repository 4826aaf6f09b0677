//! The other parts of the page: stores, leaders, tasks, functions.

use std::time::Duration;

use dlock::backends::memory::Memory;
use dlock::{Error, Key, OncePer, distributed_lock, scheduled_lock};
use serde_json::Value;

use crate::live::{Page, console, memory};

#[distributed_lock(key = "stock:<id>", ttl = "20s", backend = "main")]
async fn deduct(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[scheduled_lock(name = "nightly", at_most = "10m", once_per = "1h", backend = "main")]
async fn nightly() -> Result<(), Error> {
    Ok(())
}

#[scheduled_lock(name = "tenant:<id>", at_most = "10m", once_per = "1d", backend = "main")]
async fn each_tenant(id: u64) -> Result<(), Error> {
    assert!(id > 0);
    Ok(())
}

#[tokio::test]
async fn functions_are_shown_with_options_and_tuning() {
    assert_eq!(dlock::sites().len(), 3);
    let registry = memory();
    let ttl = std::time::Duration::from_secs(77);
    registry.tune("console::sections::deduct", |tuning| tuning.ttl = Some(ttl)).unwrap();
    let mut page = Page::open(&console(&registry).router(), "").await;
    let told = page.until("sites", |_| true).await;
    let site =
        told["sites"].as_array().unwrap().iter().find(|site| site["name"] == "console::sections::deduct").unwrap();
    assert_eq!((&site["keys"][0], &site["backend"]), (&"stock:<id>".into(), &"main (memory)".into()));
    assert_eq!(site["settings"]["ttl"], "1m 17s");
}

#[tokio::test]
async fn each_task_has_its_last_success_and_its_next_boundary() {
    let registry = dlock::Registry::global();
    registry.install("main", Memory::new()).unwrap();
    let mut page = Page::open(&console(registry).router(), "").await;
    let task = |told: &Value, name: &str| {
        told["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|task| task["task"].as_str().unwrap().contains(name))
            .unwrap()
            .clone()
    };
    let told = page.until("tasks", |_| true).await;
    assert!(task(&told, "nightly")["last"].is_null());
    assert_eq!(task(&told, "nightly")["next"].as_u64().unwrap() % 3_600_000, 0);
    assert_eq!(task(&told, "each_tenant")["keys"][0], "tenant:<id>", "{told}");
    nightly().await.unwrap();
    let told = page.until("tasks", |told| task(told, "nightly")["last"].is_object()).await;
    assert!(task(&told, "nightly")["last"]["host"].is_string(), "{told}");
    assert_eq!(deduct(1).await.unwrap(), 1);
    each_tenant(1).await.unwrap();
}

#[tokio::test]
async fn leaders_and_candidates_are_shown() {
    let registry = memory();
    let router = console(&registry).election("main", "billing").election("nowhere", "x").router();
    let mut page = Page::open(&router, "").await;
    let told = page.until("leaders", |_| true).await;
    assert!(told["elections"][0]["leader"].is_null());
    assert!(told["elections"][1]["error"].as_str().unwrap().contains("nowhere"), "{told}");
    let leadership = registry.elect("billing").candidate("web-3").campaign().await.unwrap();
    let told = page.until("leaders", |told| told["elections"][0]["leader"].is_object()).await;
    assert_eq!(told["elections"][0]["leader"]["name"], "web-3");
    // Without a word to the page, since this process is a candidate.
    let other = registry.elect("indexing").candidate("web-3").campaign().await.unwrap();
    let told = page.until("leaders", |told| told["elections"].as_array().unwrap().len() == 3).await;
    assert_eq!(told["elections"][2]["election"], "indexing");
    other.resign().await.unwrap();
    leadership.resign().await.unwrap();
}

#[tokio::test]
async fn tasks_without_an_annotated_function_are_shown_after_their_first_call() {
    let registry = memory();
    let mut page = Page::open(&console(&registry).router(), "").await;
    let once_per = OncePer::new(Duration::from_secs(3600)).offset(Duration::from_secs(60));
    registry.lock("tidy").name("tidy").once_per(once_per).run(|_| async {}).await.unwrap();
    let each = registry.lock(Key::text("tenant:").value(&7)).name("by tenant").once_per(once_per);
    each.run(|_| async {}).await.unwrap();
    let of =
        |told: &Value, name: &str| told["tasks"].as_array().unwrap().iter().find(|task| task["task"] == name).cloned();
    let told = page.until("tasks", |told| of(told, "tidy").is_some() && of(told, "by tenant").is_some()).await;
    let tidy = of(&told, "tidy").unwrap();
    assert!(
        tidy["last"].is_object() && tidy["next"].as_u64().unwrap() % 3_600_000 == 60_000 && tidy["period"] == 3_600_000,
        "{tidy}"
    );
    assert!(of(&told, "by tenant").unwrap()["keys"].is_array(), "{told}");
}

#[tokio::test]
async fn each_store_tells_how_it_is() {
    let registry = memory();
    registry.connect_lazy("down", "redis://127.0.0.1:1/").unwrap();
    let mut page = Page::open(&console(&registry).router(), "store=main").await;
    let told = page.until("about", |_| true).await;
    assert_eq!(told["stores"], serde_json::json!(["down", "main"]));
    let told = page.until("stores", |_| true).await;
    assert!(told["stores"][0]["error"].is_string() && told["stores"][1]["findings"].is_array(), "{told}");
}
