//! `mode`: one holder, many readers, or up to N holders at a time.

use dlock::{Error, ErrorKind, Mode, distributed_lock};

use crate::stores::{Other, is_busy, on_each};

#[distributed_lock(key = "shared", mode = read, wait = "none", backend = store)]
async fn read(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "shared", mode = "write", wait = "none", backend = store)]
async fn write(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "alone", wait = "none", backend = store)]
async fn plain(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "alone", mode = exclusive, wait = "none", backend = store)]
async fn exclusive(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "pool", mode = permits(3), wait = "none", guard = held, backend = store)]
async fn permit(store: &str) -> Result<Option<u32>, Error> {
    Ok(held.slot())
}

#[distributed_lock(key = "alone", wait = "none", guard = held, backend = store)]
async fn slot(store: &str) -> Result<Option<u32>, Error> {
    Ok(held.slot())
}

#[tokio::test]
async fn readers_hold_together_and_a_writer_holds_alone() {
    on_each(async |store| {
        let reader = Other::holds_as(store, "shared", Mode::Read).await;
        read(store).await.unwrap();
        is_busy(write(store).await);
        reader.releases().await;
        let writer = Other::holds_as(store, "shared", Mode::Write).await;
        is_busy(read(store).await);
        is_busy(write(store).await);
        writer.releases().await;
        write(store).await.unwrap();
        read(store).await.unwrap();
    })
    .await;
}

#[distributed_lock(keys = "shared:<ids..>", mode = read, wait = "none", backend = store)]
async fn read_each(store: &str, ids: &[u8]) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["pool:a", "pool:b"], mode = permits(3), wait = "none", guard = held, backend = store)]
async fn permits_of_both(store: &str) -> Result<Vec<Option<u32>>, Error> {
    Ok(held.iter().map(dlock::Held::slot).collect())
}

#[tokio::test]
async fn several_keys_of_one_call_all_have_its_mode() {
    let key = |id: u8| dlock::Key::text("shared:").value(&id);
    on_each(async |store| {
        let reader = Other::holds_as(store, key(2), Mode::Read).await;
        read_each(store, &[1, 2]).await.unwrap();
        reader.releases().await;
        let writer = Other::holds_as(store, key(2), Mode::Write).await;
        is_busy(read_each(store, &[1, 2]).await);
        Other::holds_as(store, key(1), Mode::Write).await.releases().await;
        writer.releases().await;

        let other = Other::holds_as(store, "pool:b", Mode::permits(3)).await;
        assert_eq!(permits_of_both(store).await.unwrap(), [Some(0), Some(1)]);
        other.releases().await;
        let other = Other::holds(store, "pool:b").await;
        assert_eq!(*permits_of_both(store).await.unwrap_err().kind(), ErrorKind::KeyConflict);
        Other::holds(store, "pool:a").await.releases().await;
        other.releases().await;
    })
    .await;
}

#[tokio::test]
async fn a_lock_is_exclusive_by_default() {
    on_each(async |store| {
        let other = Other::holds(store, "alone").await;
        is_busy(plain(store).await);
        is_busy(exclusive(store).await);
        other.releases().await;
        let reader = Other::holds_as(store, "alone", Mode::Read).await;
        for end in [plain(store).await, exclusive(store).await] {
            assert_eq!(*end.unwrap_err().kind(), ErrorKind::KeyConflict);
        }
        reader.releases().await;
        assert_eq!(slot(store).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn the_stated_number_of_permits_is_granted_and_each_has_a_number() {
    on_each(async |store| {
        let one = Other::holds_as(store, "pool", Mode::permits(3)).await;
        let two = Other::holds_as(store, "pool", Mode::permits(3)).await;
        assert_eq!(permit(store).await.unwrap(), Some(2));
        let three = Other::holds_as(store, "pool", Mode::permits(3)).await;
        is_busy(permit(store).await);
        two.releases().await;
        assert_eq!(permit(store).await.unwrap(), Some(1));
        one.releases().await;
        three.releases().await;
    })
    .await;
}
