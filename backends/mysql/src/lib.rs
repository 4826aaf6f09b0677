//! Locks in MySQL and MariaDB, in one of three ways: a [lease row](lease), which is the default, a named lock
//! ([`GET_LOCK`](named)), or a [row lock](row) (`SELECT … FOR UPDATE`).
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

pub mod fenced;
pub mod lease;
pub mod named;
pub mod row;
mod server;
pub mod versioned;

use std::sync::Arc;

use dlock_contract::{Backend, Result};
pub use dlock_sql::Login;
use dlock_sql::{Product, Source, Way};
use dlock_store::{Address, Clock, Opener, UrlForm, background};
use futures::future::BoxFuture;
use sqlx::mysql::MySqlConnectOptions;

use self::server::Server;

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&server::FORM, |address, clock| {
    Box::pin(async move {
        let named = address.clone();
        // This reads files, and a disk may hang. A store that is opened at its first use is opened on our thread.
        let server = background()?.run_blocking(move || Server::of(&named)).await??;
        open_any(server, &address, clock).await
    })
})
.checked_by(|address| dlock_sql::check(address, &Server::of(address)?.tables));

async fn open_any(server: Server, address: &Address, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(match Way::of(address) {
        Way::Named => Arc::new(named::open_at(server, address, clock).await?),
        Way::Row => Arc::new(row::open_at(server, address, clock).await?),
        _ => Arc::new(lease::open_at(server, address, clock).await?),
    })
}

/// Opens a store of MySQL and MariaDB with settings that a URL cannot have: the options of your own pool, or a provider of
/// credentials.
pub type Builder = dlock_sql::Builder<lease::MySql>;

impl Product for lease::MySql {
    type ConnectOptions = MySqlConnectOptions;
    const FORM: &'static UrlForm = &server::FORM;

    fn open(source: Source<MySqlConnectOptions>, clock: &Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let Source { address, settings, credentials } = source;
            let server = Server::of(&address)?.with_credentials(credentials);
            let server = match settings {
                Some(settings) => server.at(settings, &address)?,
                None => server,
            };
            open_any(server, &address, clock).await
        })
    }
}
