//! An operator breaks a lock, as `backends/redis/README.md` says how.

use std::time::Instant;

use dlock::{Key, Mode, Registry, Renew, Wait};

use super::database::{Database, HOUR, SECOND};
use crate::names;

async fn process(url: &str) -> Registry {
    let registry = Registry::new();
    registry.connect("redis", url).await.unwrap();
    registry.set_default("redis").unwrap();
    registry
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_lock_an_operator_deletes_hears_of_it_at_its_next_renewal() {
    for mode in [Mode::Exclusive, Mode::Read, Mode::Permits(3.try_into().unwrap())] {
        let server = Database::own(&[]);
        let (one, two) = (process(&server.url).await, process(&server.url).await);
        let renewal = 3 * SECOND;
        let lock = |registry: &Registry, mode| {
            registry.lock(Key::text("stock:").value(&42)).ttl(HOUR).renew(Renew::Every(renewal)).mode(mode)
        };
        let began = Instant::now();
        let held = lock(&one, mode).acquire().await.unwrap();
        let deleted: u64 =
            redis::cmd("DEL").arg(names::of_default(Key::text("stock:").value(&42))).query(&mut server.raw()).unwrap();
        assert_eq!(deleted, 1);
        let next = lock(&two, Mode::Exclusive).wait(Wait::None).acquire().await.unwrap();
        assert!(held.check().is_ok() || began.elapsed() >= renewal, "both believe in it");
        // Long before the end of its ttl.
        tokio::time::timeout(60 * SECOND, held.lost()).await.expect("it was not told");
        next.check().unwrap();
        next.release().await.unwrap();
        one.shutdown(SECOND).await;
        two.shutdown(SECOND).await;
    }
}
