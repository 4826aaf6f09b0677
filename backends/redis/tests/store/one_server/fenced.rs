//! Writes that carry a token.

use dlock::{ErrorKind, Key, LockKey};

use super::database::Database;

fn fence(key: &'static str, token: u64) -> dlock::Fence {
    dlock::Fence::from_parts(LockKey::new("test", Key::text(key)).unwrap(), Some(token)).unwrap()
}

#[tokio::test]
async fn a_fenced_write_is_refused_after_a_later_one() {
    use dlock::fenced::redis::{NOTHING, Script, delete, set};
    let server = Database::shared();
    let client = redis::Client::open(&*server.url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let value = || redis::cmd("GET").arg("r").query::<Option<String>>(&mut server.raw()).unwrap();
    // Digits, not numbers: these two are one as doubles, and 9 is less than 10.
    let (older, newer) = (u64::MAX - 1, u64::MAX);
    set(&mut connection, &fence("k", 9), "r", "nine").await.unwrap();
    set(&mut connection, &fence("k", 10), "r", "ten").await.unwrap();
    set(&mut connection, &fence("k", older), "r", "older").await.unwrap();
    set(&mut connection, &fence("k", newer), "r", "newer").await.unwrap();
    set(&mut connection, &fence("k", newer), "r", "newer again").await.unwrap();
    for stale in [older, 10, 9] {
        let error = set(&mut connection, &fence("k", stale), "r", "stale").await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::FenceStale { seen: newer });
    }
    let error = set(&mut connection, &fence("other", newer), "r", "foreign").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::FenceInvalid);
    assert_eq!(value().as_deref(), Some("newer again"));

    // The guard outlives the resource.
    delete(&mut connection, &fence("k", newer), "r").await.unwrap();
    assert_eq!(value(), None);
    let count = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    let error = count.run(&mut connection, &fence("k", older), "r", &["4"]).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::FenceStale { seen: newer });
    assert_eq!(value(), None);
    assert_eq!(count.run(&mut connection, &fence("k", newer), "r", &["4"]).await.unwrap(), redis::Value::Int(4));
    assert_eq!(value().as_deref(), Some("4"));
    let nothing = Script::new("");
    assert_eq!(nothing.run(&mut connection, &fence("k", newer), "r", NOTHING).await.unwrap(), redis::Value::Nil);
}
