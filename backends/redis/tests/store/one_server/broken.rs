//! An operator breaks a lock, as `backends/redis/README.md` says how.

use dlock::{Key, Mode, Registry, Wait};

use super::database::{Database, SECOND};
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
        let ttl = 9 * SECOND;
        let lock = |registry: &Registry, mode| registry.lock(Key::text("stock:").value(&42)).ttl(ttl).mode(mode);
        let held = lock(&one, mode).acquire().await.unwrap();
        let deleted: u64 =
            redis::cmd("DEL").arg(names::of_default(Key::text("stock:").value(&42))).query(&mut server.raw()).unwrap();
        assert_eq!(deleted, 1);
        let next = lock(&two, Mode::Exclusive).wait(Wait::None).acquire().await.unwrap();
        held.check().expect("both believe in it");
        // A third of the ttl, and some time for a busy machine.
        tokio::time::timeout(8 * SECOND, held.lost()).await.expect("it was not told");
        next.check().unwrap();
        next.release().await.unwrap();
        one.shutdown(SECOND).await;
        two.shutdown(SECOND).await;
    }
}
