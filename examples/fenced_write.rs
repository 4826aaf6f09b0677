//! Why a lock alone is not enough: a holder that was paused comes back and writes. Its fencing token stops it.
//!
//! `cargo run --example fenced_write`
//!
//! No lock service can prevent this: between the last look at the lock and the write the process may stand still for
//! as long as it likes. So the token goes along with the write, and the database refuses one that is older than
//! another it has seen. The program exits with an error if the late write passes.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use std::path::Path;
use std::time::Duration;

use dlock::fenced::sqlite as fenced;
use dlock::{ErrorKind, Fence, Guard, Registry, Renew};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Writes what is left, unless somebody with a higher token was here.
async fn write_fenced(shop: &mut SqliteConnection, fence: &Fence, left: u32) -> Result<(), Failure> {
    let mut transaction = shop.begin_with("BEGIN IMMEDIATE").await?;
    fenced::admit(&mut transaction, fence, "stock:42").await?;
    sqlx::query("UPDATE stock SET remaining = ?").bind(left).execute(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}

/// Writes what is left, and trusts in the lock.
async fn write_plain(shop: &mut SqliteConnection, left: u32) -> Result<(), Failure> {
    sqlx::query("UPDATE stock SET remaining = ?").bind(left).execute(shop).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let mut shop = open_shop(&folder.path().join("shop.db")).await?;
    // Two processes in one program: each has its own registry, and they meet in the file of the locks.
    let [anna, bert] = [Registry::new(), Registry::new()];
    let locks = format!("sqlite://{}", folder.path().join("locks.db").display());
    anna.connect("main", &locks).await?;
    bert.connect("main", &locks).await?;

    println!("10 things are left. Anna locks, looks, makes sure that the lock is hers, and is paused.");
    let annas = lock(&anna).await?;
    let annas_fence = annas.fence()?;
    let anna_saw = remaining(&mut shop).await?;
    annas.check()?;

    // No step of Anna's happens here. Her lease ends, as it must: nobody can know that she will come back.
    let berts = lock(&bert).await?;
    let bert_saw = remaining(&mut shop).await?;
    write_fenced(&mut shop, &berts.fence()?, bert_saw - 3).await?;
    println!("Bert gets the lock when her ttl has ended, and sells 3: token {}, 7 left.", berts.fence()?);
    berts.release().await?;

    println!("Anna goes on where she was: after her check, before her write of 9. Her token is {annas_fence}.");
    match write_fenced(&mut shop, &annas_fence, anna_saw - 1).await {
        Err(failure) if is_stale(&failure) => println!("  with the token: {failure}"),
        Err(failure) => return Err(failure),
        Ok(()) => return Err("the late write has passed the fence".into()),
    }
    expect(&mut shop, 7).await?;

    write_plain(&mut shop, anna_saw - 1).await?;
    expect(&mut shop, 9).await?;
    println!("  without it: written. 9 left, and the 3 that Bert has sold are forgotten.");
    Ok(())
}

/// A short lock that nobody renews, as if the holder's process stood still from the beginning.
async fn lock(registry: &Registry) -> Result<Guard, dlock::Error> {
    registry.lock("stock:42").backend("main").ttl(Duration::from_secs(1)).renew(Renew::Off).acquire().await
}

async fn open_shop(file: &Path) -> Result<SqliteConnection, Failure> {
    let mut shop = SqliteConnectOptions::new().filename(file).create_if_missing(true).connect().await?;
    fenced::prepare(&mut shop).await?;
    sqlx::raw_sql("CREATE TABLE stock (remaining INTEGER NOT NULL) STRICT; INSERT INTO stock (remaining) VALUES (10);")
        .execute(&mut shop)
        .await?;
    Ok(shop)
}

async fn remaining(shop: &mut SqliteConnection) -> Result<u32, Failure> {
    Ok(sqlx::query_scalar("SELECT remaining FROM stock").fetch_one(shop).await?)
}

async fn expect(shop: &mut SqliteConnection, expected: u32) -> Result<(), Failure> {
    let found = remaining(shop).await?;
    if found == expected { Ok(()) } else { Err(format!("{found} left instead of {expected}").into()) }
}

fn is_stale(failure: &Failure) -> bool {
    failure.downcast_ref::<dlock::Error>().is_some_and(|error| matches!(error.kind(), ErrorKind::FenceStale { .. }))
}
