//! The last minutes: waits, losses, hand-overs.

use std::time::Duration;

use dlock::{Cohort, Key, Wait};
use serde_json::Value;

use crate::live::{Page, console, memory};

#[tokio::test]
async fn losses_and_waits_that_ran_out_are_told() {
    let registry = memory();
    let router = console(&registry).router();
    let mut page = Page::open(&router, "").await;
    let guard = registry.lock(Key::text("job:").value(&1)).name("work").acquire().await.unwrap();
    let busy = registry.lock(Key::text("job:").value(&1)).name("late").wait(Wait::UpTo(Duration::from_millis(1)));
    busy.acquire().await.unwrap_err();
    let id = registry.held()[0].id;
    assert!(registry.lock(Key::text("job:").value(&1)).break_hold(id).await.unwrap());
    guard.release().await.unwrap_err();
    let is_told = |told: &Value| told["trouble"].as_array().unwrap().iter().any(|one| one["is_loss"] == true);
    let told = page.until("activity", is_told).await;
    let trouble = told["trouble"].as_array().unwrap();
    let of = |name: &str| trouble.iter().find(|one| one["name"] == name).unwrap();
    assert!(of("work")["what"].as_str().unwrap().contains("broken"), "{told}");
    assert!(of("late")["what"].as_str().unwrap().contains("ran out"), "{told}");
    let work = told["names"].as_array().unwrap().iter().find(|one| one["name"] == "work").unwrap();
    assert_eq!((&work["held"], &work["waiting"]), (&0.into(), &0.into()));
    let sum = |column: usize| {
        work["cells"].as_array().unwrap().iter().map(|cell| cell[column].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((sum(1), sum(2), sum(5)), (1, 0, 1), "one grant, by a request, and one loss: {work}");
}

#[tokio::test]
async fn hand_overs_are_counted() {
    let registry = memory();
    let router = console(&registry).router();
    let mut page = Page::open(&router, "").await;
    let lock = || registry.lock("job").name("work").cohort(Some(Cohort { passes: 1, span: None }));
    let first = lock().acquire().await.unwrap();
    let (second, released) = tokio::join!(lock().acquire(), async {
        while registry.waited_for().is_empty() {
            tokio::task::yield_now().await;
        }
        first.release().await
    });
    released.unwrap();
    second.unwrap().release().await.unwrap();
    let handed = |told: &Value| -> u64 {
        let work = told["names"].as_array().unwrap().iter().find(|one| one["name"] == "work");
        work.into_iter().flat_map(|work| work["cells"].as_array().unwrap()).filter_map(|cell| cell[2].as_u64()).sum()
    };
    page.until("activity", |told| handed(told) == 1).await;
}

#[tokio::test]
async fn who_held_a_key_one_after_the_other_is_kept() {
    let registry = memory();
    let router = console(&registry).router();
    let mut page = Page::open(&router, "store=main").await;
    for number in 1..=2 {
        let guard = registry.lock("job").acquire().await.unwrap();
        let told = page.until("activity", |told| told["seen"].as_array().unwrap().len() == number).await;
        assert_eq!(told["seen"][number - 1][1], "job", "{told}");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn names_without_bound_are_counted_together() {
    let registry = memory();
    let router = console(&registry).router();
    let mut page = Page::open(&router, "").await;
    for number in 0..700 {
        registry.lock("k").name(format!("name-{number}")).acquire().await.unwrap().release().await.unwrap();
    }
    let told =
        page.until("activity", |told| told["names"].as_array().unwrap().iter().any(|one| one["name"] == "other")).await;
    assert!(told["names"].as_array().unwrap().len() <= 40 && told.to_string().len() < 100_000);
}
