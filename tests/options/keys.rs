//! `key`, `keys` and the spread: which locks a call takes.

use dlock::{Error, Held, Key, distributed_lock};

use crate::stores::{Other, is_busy, is_free, on_each};

#[distributed_lock(key = "key:<id>", wait = "none", backend = store)]
async fn one(store: &str, id: u8) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = Key::text("key:").value(id), wait = "none", backend = store)]
async fn computed(store: &str, id: &u8) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["keys:<from>", "keys:<to>"], wait = "none", guard = held, backend = store)]
async fn both(store: &str, from: u8, to: u8) -> Result<usize, Error> {
    held.iter().try_for_each(Held::check)?;
    let of = |id: u8| Key::text("keys:").value(&id);
    assert!(held[0].is_of(&of(from)) && held[1].is_of(&of(to)), "as written: {held:?}");
    Ok(held.len())
}

#[distributed_lock(keys = "each:<ids..>", wait = "none", guard = held, backend = store)]
async fn each(store: &str, ids: &[u8]) -> Result<usize, Error> {
    Ok(held.len())
}

#[tokio::test]
async fn a_key_excludes_its_own_value_and_no_other() {
    on_each(async |store| {
        let other = Other::holds(store, Key::text("key:").value(&1_u8)).await;
        is_busy(one(store, 1).await);
        is_busy(computed(store, &1).await);
        one(store, 2).await.unwrap();
        computed(store, &2).await.unwrap();
        other.releases().await;
        one(store, 1).await.unwrap();
        is_free(store, Key::text("key:").value(&1_u8)).await;
    })
    .await;
}

#[tokio::test]
async fn several_keys_are_all_or_none() {
    let key = |id: u8| Key::text("keys:").value(&id);
    on_each(async |store| {
        let other = Other::holds(store, key(2)).await;
        is_busy(both(store, 1, 2).await);
        is_busy(both(store, 2, 1).await);
        is_free(store, key(1)).await;
        other.releases().await;
        for (from, to) in [(1, 2), (2, 1), (1, 1)] {
            assert_eq!(both(store, from, to).await.unwrap(), 2, "one for each key that is written");
        }
        is_free(store, key(2)).await;
    })
    .await;
}

#[tokio::test]
async fn a_spread_takes_a_lock_for_each_value() {
    on_each(async |store| {
        let other = Other::holds(store, Key::text("each:").value(&3_u8)).await;
        is_busy(each(store, &[1, 3]).await);
        assert_eq!(each(store, &[1, 2, 1]).await.unwrap(), 3);
        other.releases().await;
        assert_eq!(each(store, &[1, 3]).await.unwrap(), 2);
    })
    .await;
}
