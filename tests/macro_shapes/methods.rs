//! Every kind of receiver, and traits with async functions of their own.

use std::future::Future;
use std::sync::Arc;

use dlock::{Error, distributed_lock};

struct Address {
    zip: String,
}

struct Shop {
    id: u64,
    address: Address,
    sold: u32,
}

impl Shop {
    #[distributed_lock(key = "shop:<self.id>:<self.address.zip>")]
    pub(crate) async fn by_ref(&self, n: u32) -> Result<u32, Error> {
        Ok(self.sold + n)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    async fn by_mut(&mut self, n: u32) -> Result<&mut u32, Error> {
        self.sold += n;
        Ok(&mut self.sold)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    async fn by_value(mut self) -> Result<Self, Error> {
        self.sold = 0;
        Ok(self)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    async fn by_arc(self: Arc<Self>) -> Result<Arc<Self>, Error> {
        Ok(self)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    async fn by_arc_ref(self: &Arc<Self>) -> Result<Arc<Self>, Error> {
        Ok(Arc::clone(self))
    }

    #[distributed_lock(key = "shops")]
    async fn without() -> Result<Option<Self>, Error> {
        Ok(None)
    }
}

trait Restock {
    type Report;
    fn restock(&mut self, n: u32) -> impl Future<Output = Result<Self::Report, Error>> + Send;
    async fn count(&self) -> Result<u32, Error>;
    #[distributed_lock(key = "default")]
    async fn provided(&self) -> Result<u32, Error> {
        self.count().await
    }
}

impl Restock for Shop {
    type Report = u32;

    #[distributed_lock(key = "shop:<self.id>")]
    async fn restock(&mut self, n: u32) -> Result<Self::Report, Error> {
        self.sold += n;
        Ok(self.sold)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    async fn count(&self) -> Result<u32, Error> {
        Ok(self.sold)
    }
}

fn shop() -> Shop {
    Shop { id: 1, address: Address { zip: String::new() }, sold: 2 }
}

pub(crate) fn make() {
    drop(shop().by_ref(1));
    drop(shop().by_mut(1));
    drop(shop().by_value());
    drop(Arc::new(shop()).by_arc());
    drop(Arc::new(shop()).by_arc_ref());
    drop(Shop::without());
    drop(shop().restock(1));
    drop(shop().count());
    drop(shop().provided());
}
