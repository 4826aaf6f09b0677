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
    let sums = [1, 2, 5].map(|column| sum(&told, "work", column));
    assert_eq!(sums, [1, 0, 1], "one grant, by a request, and one loss: {work}");
    assert_eq!([1, 4].map(|column| sum(&told, "late", column)), [0, 1], "no grant, and one wait that ran out: {told}");
}

/// A column of the cells of one name.
fn sum(told: &Value, name: &str, column: usize) -> u64 {
    let of_name = told["names"].as_array().unwrap().iter().filter(|one| one["name"] == name);
    of_name.flat_map(|one| one["cells"].as_array().unwrap()).filter_map(|cell| cell[column].as_u64()).sum()
}

#[tokio::test]
async fn long_waits_are_counted() {
    let registry = memory();
    let router = console(&registry).router();
    let mut page = Page::open(&router, "").await;
    let lock = || registry.lock("job").name("slow");
    let first = lock().acquire().await.unwrap();
    let (second, released) = tokio::join!(lock().wait(Wait::Forever).acquire(), async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        first.release().await
    });
    released.unwrap();
    second.unwrap().release().await.unwrap();
    let told = page.until("activity", |told| sum(told, "slow", 1) == 2).await;
    assert_eq!(sum(&told, "slow", 3), 1, "{told}");
    let slow = told["names"].as_array().unwrap().iter().find(|one| one["name"] == "slow").unwrap();
    assert!(slow["longest_wait"].as_u64().is_some_and(|ms| ms >= 100), "{slow}");
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
    page.until("activity", |told| sum(told, "work", 2) == 1).await;
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
