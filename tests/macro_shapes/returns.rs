#![deny(warnings)]
//! The return type is judged by its traits, never by its name.

use std::error::Error as StdError;
use std::fmt::Debug;

use dlock::{Error, distributed_lock};

type Alias<T = ()> = Result<T, Box<dyn StdError + Send + Sync>>;

#[distributed_lock(key = "a")]
async fn alias() -> Alias {
    Ok(())
}

#[distributed_lock(key = "a")]
async fn coerced(id: u8) -> Result<Box<dyn Debug + Send>, Error> {
    if id == 1 {
        return Ok(Box::new(id));
    }
    Ok(Box::new("other"))
}

#[distributed_lock(key = "a")]
async fn inferred(text: &str) -> Alias<Vec<u8>> {
    let number = text.parse()?;
    Ok(vec![number].into_iter().collect())
}

#[distributed_lock(key = "a")]
async fn endless() -> Result<std::convert::Infallible, Error> {
    loop {
        std::future::pending::<()>().await;
    }
}

fn assert_send<T: Send>(_: T) {}

pub(crate) fn make() {
    assert_send(alias());
    assert_send(coerced(1));
    assert_send(inferred("1"));
    assert_send(endless());
}
