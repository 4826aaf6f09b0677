#![deny(warnings)]
//! Functions that are not async: the thread waits, and the body may borrow as in any function.

use std::sync::Arc;

use dlock::{Error, Held, Outcome, distributed_lock};

#[derive(Debug)]
struct Shop {
    id: u64,
    sold: u32,
    name: String,
}

impl Shop {
    #[distributed_lock(key = "shop:<self.id>", guard = held)]
    fn by_mut(&mut self, n: u32) -> Result<&mut u32, Error> {
        held.check()?;
        self.sold += n;
        Ok(&mut self.sold)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    fn by_ref<'a>(&'a self, other: &'a str) -> Result<&'a str, Error> {
        if other.is_empty() {
            return Ok(&self.name);
        }
        Ok(other)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    fn by_value(mut self) -> Result<Self, Error> {
        self.sold = 0;
        Ok(self)
    }

    #[distributed_lock(key = "shop:<self.id>")]
    fn by_arc(self: Arc<Self>) -> Result<Arc<Self>, Error> {
        Ok(self)
    }

    #[distributed_lock(key = "shop:<self.id>", on_busy = call(Self::refused))]
    fn instead(&mut self, n: u32) -> Result<&mut u32, Error> {
        self.sold += n;
        Ok(&mut self.sold)
    }

    fn refused(&mut self, n: u32) -> Result<&mut u32, Error> {
        self.sold -= n;
        Ok(&mut self.sold)
    }
}

trait Restock {
    fn restock(&mut self, n: u32) -> Result<u32, Box<dyn std::error::Error + Send + Sync>>;
}

impl Restock for Shop {
    #[distributed_lock(key = "shop:<self.id>")]
    fn restock(&mut self, n: u32) -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
        let step: u32 = "1".parse()?;
        self.sold += n + step;
        Ok(self.sold)
    }
}

#[distributed_lock(key = "<id>:<N>")]
fn generic<K: dlock::KeyPart + Clone, T, const N: usize>(id: K, values: [T; N]) -> Result<(K, [T; N]), Error> {
    Ok((id, values))
}

#[distributed_lock(key = "a", on_busy = skip)]
fn skipped(mut n: u32) -> Option<u32> {
    n += 1;
    Some(n)
}

#[distributed_lock(key = "a", on_busy = "skip", on_outage = skip)]
fn nothing() {}

#[distributed_lock(key = "a")]
fn told_apart() -> Outcome<u8> {
    5.into()
}

#[distributed_lock(keys = ["a:<a>", "b:<b>"], guard = both)]
fn several(a: u8, b: u8) -> Result<usize, Error> {
    let both: Vec<Held> = both;
    both.iter().try_for_each(Held::check)?;
    Ok(both.len())
}

#[distributed_lock(keys = "item:<ids..>", guard = all)]
fn each(ids: &[u64]) -> Result<usize, Error> {
    Ok(all.len())
}

#[distributed_lock(key = "a")]
fn impl_argument(shown: impl std::fmt::Display) -> Result<String, Error> {
    Ok(shown.to_string())
}

#[distributed_lock(key = "a", once_per = "1h")]
fn once() -> Result<(), Error> {
    Ok(())
}

pub(crate) fn make() {
    crate::install();
    let mut shop = Shop { id: 1, sold: 2, name: "a".into() };
    *shop.by_mut(3).expect("free") += 1;
    assert_eq!(shop.by_ref("").expect("free"), "a");
    assert_eq!(*shop.instead(1).expect("free"), 7);
    assert_eq!(shop.restock(1).expect("free"), 9);
    assert_eq!(shop.by_value().expect("free").sold, 0);
    assert!(Arc::new(Shop { id: 1, sold: 0, name: String::new() }).by_arc().is_ok());
    assert_eq!(generic("a", [1, 2]).expect("free").1, [1, 2]);
    assert_eq!(skipped(1), Some(2));
    nothing();
    assert!(matches!(told_apart(), Outcome::Ran(5)));
    assert_eq!(several(1, 2).expect("free"), 2);
    assert_eq!(each(&[3, 1, 3]).expect("free"), 3);
    assert_eq!(impl_argument(5).expect("free"), "5");
    // A store that cannot tell its time refuses.
    drop(once());
}
