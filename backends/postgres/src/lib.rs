//! Locks in PostgreSQL, in one of three ways: lease rows, which are the default, [advisory locks](named), or
//! [row locks](row) (`SELECT … FOR UPDATE`).
//!
//! The algorithms are in `dlock-sql`. This crate has the parts that are specific to PostgreSQL.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

pub mod fenced;
mod lease;
mod lock_in;
pub mod named;
pub mod row;
mod server;
pub mod versioned;

use std::sync::Arc;

use dlock_contract::{Backend, Result};
use dlock_sql::{LeaseRow, Product, Settings, ShedlockTable, Source, Way};
use dlock_store::{Address, Clock, Opener, UrlForm, background};
use futures::future::BoxFuture;
use sqlx::postgres::PgConnectOptions;

pub use dlock_sql::Login;

pub use self::lease::dialect::Postgres;
pub use self::lock_in::{Transaction, lock_in, try_lock_in};
use self::server::{FORM, Server};

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&FORM, |address, clock| {
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
        _ => Arc::new(open_at(server, address, clock).await?),
    })
}

/// Opens `postgres://user:password@host:port/database`. Special characters in the account are percent-encoded.
/// `?socket=folder` uses the Unix socket in that folder. Of several hosts, the first writable one is used. A URL with another
/// host than this one must have `tls=verify` (with `ca`, `cert` and `key`, which are files), `tls=require` or `tls=off`. Only
/// `tls=verify` keeps the password from a rogue server.
///
/// # Errors
/// If no server can be reached, the account is refused, or all servers are read-only; if a table is missing and the account may
/// not create it; if a table has other columns.
pub async fn open(url: &str, clock: &Clock) -> Result<LeaseRow<Postgres>> {
    let address = Address::parse(url, &FORM)?;
    open_at(Server::of(&address)?, &address, clock).await
}

async fn open_at(server: Server, address: &Address, clock: &Clock) -> Result<LeaseRow<Postgres>> {
    let dialect = Postgres::new(server, clock).in_shedlock(ShedlockTable::of(address, address.option("schema"))?);
    LeaseRow::open(dialect, Settings::of(address)?, clock).await
}

/// Opens a store of PostgreSQL with settings that a URL cannot have: the options of your own pool, or a provider of
/// credentials.
pub type Builder = dlock_sql::Builder<Postgres>;

impl Product for Postgres {
    type ConnectOptions = PgConnectOptions;
    const FORM: &'static UrlForm = &server::FORM;

    fn open(source: Source<PgConnectOptions>, clock: &Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
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
