//! Locks in MySQL and MariaDB, in one of three ways: a [lease row](lease), which is the default, a named lock
//! ([`GET_LOCK`](named)), or a [row lock](row) (`SELECT … FOR UPDATE`).

// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

pub mod fenced;
pub mod lease;
pub mod named;
pub mod row;
mod server;
pub mod versioned;

use std::sync::Arc;

use dlock_contract::{Address, Backend, Clock, Opener, Result};
use dlock_sql::Way;

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&server::FORM, |address, clock| Box::pin(open(address, clock)));

async fn open(address: Address, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(match server::way_of(&address) {
        Way::Named => Arc::new(named::open_at(&address, clock).await?),
        Way::Row => Arc::new(row::open_at(&address, clock).await?),
        _ => Arc::new(lease::open_at(&address, clock).await?),
    })
}
