//! Under `#[async_trait]` the attribute is given a function that returns a box, and locks inside of it.

use async_trait::async_trait;
use dlock::{Error, distributed_lock};
use tracing::instrument;

#[async_trait]
trait Restock {
    async fn restock(&mut self, item: &str, n: u32) -> Result<u32, Error>;
    async fn take(self, n: u32) -> Result<Vec<u32>, Error>;
    async fn instrumented_above(&self, mut id: u64) -> Result<u64, Error>;
    async fn instrumented_below(&self, id: u64) -> Result<u64, Error>;
    async fn twice(&self, id: u64) -> Result<u64, Error>;
    async fn without(id: u64) -> Result<u64, Error>;

    #[distributed_lock(key = "provided:<n>")]
    async fn provided(&self, n: u32) -> Result<u32, Error> {
        Ok(n)
    }
}

struct Shop {
    id: u64,
    sold: u32,
}

#[async_trait]
impl Restock for Shop {
    #[distributed_lock(key = "shop:<self.id>:<item>")]
    async fn restock(&mut self, item: &str, n: u32) -> Result<u32, Error> {
        self.sold += n;
        std::future::ready(item).await;
        if n == 0 {
            return Ok(0);
        }
        Ok(self.sold)
    }

    #[distributed_lock(key = "shop:<self.id>:<n>")]
    async fn take(mut self, n: u32) -> Result<Vec<u32>, Error> {
        self.sold -= n;
        Ok(vec![self.sold])
    }

    #[instrument(skip(self))]
    #[distributed_lock(key = "shop:<self.id>:<id>")]
    async fn instrumented_above(&self, mut id: u64) -> Result<u64, Error> {
        id += self.id;
        Ok(id)
    }

    #[distributed_lock(key = "shop:<self.id>:<id>")]
    #[instrument(skip(self))]
    async fn instrumented_below(&self, id: u64) -> Result<u64, Error> {
        Ok(self.id + id)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    #[distributed_lock(key = "item:<id>")]
    async fn twice(&self, id: u64) -> Result<u64, Error> {
        Ok(self.id + id)
    }

    #[distributed_lock(key = "item:<id>")]
    async fn without(id: u64) -> Result<u64, Error> {
        Ok(id)
    }
}

#[async_trait(?Send)]
trait Local {
    async fn local(&self, id: u64) -> Result<u64, Error>;
}

#[async_trait(?Send)]
impl Local for std::rc::Rc<Shop> {
    #[distributed_lock(key = "shop:<self.id>:<id>")]
    async fn local(&self, id: u64) -> Result<u64, Error> {
        let this = self.clone();
        std::future::ready(()).await;
        Ok(this.id + id)
    }
}

fn assert_send<T: Send>(_: T) {}

pub(crate) fn make() {
    let mut shop = Shop { id: 1, sold: 2 };
    assert_send(shop.restock("a", 1));
    assert_send(shop.instrumented_above(1));
    assert_send(shop.instrumented_below(1));
    assert_send(shop.twice(1));
    assert_send(shop.provided(1));
    assert_send(Shop::without(1));
    assert_send(shop.take(1));
    drop(std::rc::Rc::new(Shop { id: 1, sold: 2 }).local(1));
}
