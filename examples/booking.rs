//! A lock in a transaction of your own, in PostgreSQL: guests book a room, and no night is booked twice.
//!
//! `cargo run --example booking -- postgres://user:password@host/database`
//!
//! Thirty guests want the same room, each for three nights of the next ten. Each transaction looks whether one of its nights is
//! booked already, and inserts a booking if not. The bookings that it must not meet are not there yet, so `FOR UPDATE` has no row
//! to lock. `dlock::postgres::lock_in` locks the room instead, from here to the commit or the rollback. Nothing is to be
//! connected or renewed, and it works behind every pooler.
//!
//! The program exits with an error if a night was booked twice. `-- URL --unlocked` runs it without the lock, to see that happen.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use std::time::Duration;

use dlock::{Key, postgres};
use futures::future::try_join_all;
use sqlx::PgPool;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS dlock_example_bookings \
    (room BIGINT NOT NULL, guest INT NOT NULL, first_night INT NOT NULL, last_night INT NOT NULL)";
const GUESTS: i32 = 30;
const NIGHTS: i32 = 10;

/// Says whether the room was free. The first night is 0, and a guest stays for three.
async fn book(hotel: &PgPool, room: i64, guest: i32, is_locked: bool) -> Result<bool, Failure> {
    let (first, last) = (guest % (NIGHTS - 2), guest % (NIGHTS - 2) + 2);
    let mut tx = hotel.begin().await?;
    if is_locked {
        postgres::lock_in(&mut tx, Key::text("room:").value(&room)).await?;
    }
    let sql = "SELECT count(*) FROM dlock_example_bookings WHERE room = $1 AND first_night <= $3 AND last_night >= $2";
    let booked: i64 = sqlx::query_scalar(sql).bind(room).bind(first).bind(last).fetch_one(&mut *tx).await?;
    tokio::time::sleep(Duration::from_millis(2)).await;
    if booked > 0 {
        // The end of the transaction frees the lock, whichever it is.
        tx.rollback().await?;
        return Ok(false);
    }
    let sql = "INSERT INTO dlock_example_bookings VALUES ($1, $2, $3, $4)";
    sqlx::query(sql).bind(room).bind(guest).bind(first).bind(last).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(true)
}

/// How many nights have more than one guest.
async fn booked_twice(hotel: &PgPool, room: i64) -> Result<i64, Failure> {
    let sql = "SELECT count(*) FROM (SELECT night FROM generate_series(0, $2 - 1) AS night \
        JOIN dlock_example_bookings ON night BETWEEN first_night AND last_night \
        WHERE room = $1 GROUP BY night HAVING count(*) > 1) AS nights";
    Ok(sqlx::query_scalar(sql).bind(room).bind(NIGHTS).fetch_one(hotel).await?)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("usage: booking postgres://user:password@host/database [--unlocked]")?;
    let is_locked = arguments.next().is_none_or(|word| word != "--unlocked");

    let (hotel, room) = (PgPool::connect(&url).await?, fastrand::i64(1..));
    sqlx::raw_sql(TABLE).execute(&hotel).await?;
    let booked = try_join_all((0..GUESTS).map(|guest| book(&hotel, room, guest, is_locked))).await?;
    let booked = booked.iter().filter(|is_booked| **is_booked).count();

    let twice = booked_twice(&hotel, room).await?;
    println!("{booked} of {GUESTS} guests have a room, and {twice} nights are booked twice");
    if twice == 0 && booked > 0 { Ok(()) } else { Err("two guests have the room in the same night".into()) }
}
