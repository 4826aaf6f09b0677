//! `guard`, `fence` and `name`: the variables of the body, and the name of the lock in events.

use dlock::{Error, Key, distributed_lock};

use crate::stores::on_each;

#[distributed_lock(key = "names:<id>", guard = held, fence = token, backend = store)]
async fn both(store: &str, id: u8) -> Result<u64, Error> {
    held.confirm().await?;
    assert_eq!((held.backend(), &held.fence()?), (store, &token));
    assert!(held.is_of(&Key::text("names:").value(&id)));
    Ok(token.get())
}

#[distributed_lock(key = "names", name = "stock-keeper", backend = store)]
async fn named(store: &str) -> Result<Option<String>, Error> {
    site_of_the_holder(store).await
}

#[distributed_lock(key = "names", backend = store)]
async fn unnamed(store: &str) -> Result<Option<String>, Error> {
    site_of_the_holder(store).await
}

/// As any process sees it.
async fn site_of_the_holder(store: &str) -> Result<Option<String>, Error> {
    let note = dlock::lock("names").backend(store).holders().await?.note().cloned();
    Ok(note.and_then(|note| note.site().map(str::to_owned)))
}

#[tokio::test]
async fn the_guard_and_the_token_have_the_names_of_the_attribute() {
    on_each(async |store| {
        let (first, second) = (both(store, 1).await.unwrap(), both(store, 1).await.unwrap());
        assert!(first < second);
    })
    .await;
}

#[tokio::test]
async fn the_attribute_adds_no_name_to_the_body_by_default() {
    #[distributed_lock(key = "hygiene", backend = store)]
    async fn hygienic(store: &str, held: u8, token: u8) -> Result<u8, Error> {
        Ok(held + token)
    }
    on_each(async |store| assert_eq!(hygienic(store, 1, 2).await.unwrap(), 3)).await;
}

#[tokio::test]
async fn a_lock_is_known_by_its_name_or_the_path_of_its_function() {
    on_each(async |store| {
        assert_eq!(named(store).await.unwrap().as_deref(), Some("stock-keeper"));
        assert_eq!(unnamed(store).await.unwrap().as_deref(), Some("options::names::unnamed"));
    })
    .await;
}
