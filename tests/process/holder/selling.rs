//! A process that works inside the lock's own transaction.

use std::time::Duration;

use dlock::{Held, distributed_lock};

use super::var;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Sells one thing, and says how that ended.
pub(super) async fn sell() {
    let ended = match sell_one().await {
        Ok(()) => "sold".to_owned(),
        Err(failure) => match failure.downcast::<dlock::Error>() {
            Ok(error) if error.is_lost() => "lost".to_owned(),
            Ok(error) => error.to_string(),
            Err(failure) => failure.to_string(),
        },
    };
    println!("ended: {ended}");
}

/// The body stays in the transaction until it is ended from outside.
#[distributed_lock(key = "job", ttl = "2s", wait = "60s", guard = held)]
async fn sell_one() -> Result<(), Failure> {
    println!("worked {}", take_one(&held, &var("RESOURCE")).await?);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    Ok(())
}

/// Takes one thing off the stock in the lock's transaction; gives the number of its session.
pub(crate) async fn take_one(held: &Held, url: &str) -> Result<i64, Failure> {
    const TAKE: &str = "UPDATE stock SET remaining = remaining - 1";
    if url.starts_with("postgres") {
        let mut tx = dlock::postgres::transaction(held)?;
        let mut conn = tx.conn().await?;
        sqlx::query(TAKE).execute(&mut *conn).await?;
        let session: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *conn).await?;
        Ok(session.into())
    } else {
        let mut tx = dlock::mysql::transaction(held)?;
        let mut conn = tx.conn().await?;
        sqlx::query(TAKE).execute(&mut *conn).await?;
        Ok(sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS SIGNED)").fetch_one(&mut *conn).await?)
    }
}
