//! The shop's database: one number, a ledger of purchases, and the count from that ledger afterwards.

use std::path::Path;
use std::time::Duration;

use futures::future::try_join_all;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

/// How many buyers of a process the database serves at a time.
const CONNECTIONS: u32 = 4;

/// One process's view of the shop.
#[derive(Clone, Debug)]
pub(crate) struct Shop(SqlitePool);

impl Shop {
    pub(crate) async fn create(file: &Path, stock: u32) -> sqlx::Result<Self> {
        let shop = Self::connect(options(file).create_if_missing(true)).await?;
        sqlx::raw_sql(
            "CREATE TABLE stock (remaining INTEGER NOT NULL) STRICT;
             CREATE TABLE purchases (id INTEGER PRIMARY KEY, buyer INTEGER NOT NULL UNIQUE, token INTEGER) STRICT;",
        )
        .execute(&shop.0)
        .await?;
        sqlx::query("INSERT INTO stock (remaining) VALUES (?)").bind(stock).execute(&shop.0).await?;
        Ok(shop)
    }

    pub(crate) async fn open(file: &Path) -> sqlx::Result<Self> {
        let shop = Self::connect(options(file)).await?;
        // All connections come up before the doors open: that takes longer than a buyer thinks.
        try_join_all((0..CONNECTIONS).map(|_| shop.0.acquire())).await?;
        Ok(shop)
    }

    async fn connect(options: SqliteConnectOptions) -> sqlx::Result<Self> {
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(Duration::from_secs(120));
        Ok(Self(pool.connect_with(options).await?))
    }

    /// The remaining stock, read outside the transaction of `sell`.
    pub(crate) async fn stock(&self) -> sqlx::Result<u32> {
        sqlx::query_scalar("SELECT remaining FROM stock").fetch_one(&self.0).await
    }

    /// Writes what is left, and who bought under which token: the second transaction.
    pub(crate) async fn sell(&self, buyer: u32, remaining: u32, token: Option<u64>) -> sqlx::Result<()> {
        let token = token.map(i64::try_from).transpose().map_err(|error| sqlx::Error::Encode(error.into()))?;
        let mut transaction = self.0.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query("UPDATE stock SET remaining = ?").bind(remaining).execute(&mut *transaction).await?;
        sqlx::query("INSERT INTO purchases (buyer, token) VALUES (?, ?)")
            .bind(buyer)
            .bind(token)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await
    }

    /// Counts again, from what is in the file and not from what anybody remembers.
    pub(crate) async fn count(&self) -> sqlx::Result<Count> {
        let tokens = sqlx::query_scalar("SELECT token FROM purchases ORDER BY id").fetch_all(&self.0).await?;
        Ok(Count { left: self.stock().await?, tokens })
    }
}

fn options(file: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(file)
        .journal_mode(SqliteJournalMode::Wal)
        // It need not outlive a power failure.
        .synchronous(SqliteSynchronous::Off)
        .busy_timeout(Duration::from_secs(60))
}

/// The shop after the sale.
#[derive(Debug)]
pub(crate) struct Count {
    left: u32,
    /// One for each purchase, in the order of the ledger.
    tokens: Vec<Option<i64>>,
}

impl Count {
    pub(crate) fn sold(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn oversold(&self, stock: u32) -> usize {
        self.sold().saturating_sub(stock as usize)
    }

    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// The promise of the lock that this sale broke; `None` if it kept all.
    pub(crate) fn broken_promise(&self, stock: u32) -> Option<String> {
        if self.sold() != stock as usize {
            return Some(format!("{} of {stock} were sold", self.sold()));
        }
        if self.left != 0 {
            return Some(format!("all were sold, and yet {} are left", self.left));
        }
        if self.tokens.contains(&None) {
            return Some("a purchase has no token".into());
        }
        // Each grant has a higher token than all before it: a purchase out of order came from a hold that had ended.
        self.tokens.windows(2).find(|pair| pair[0] >= pair[1]).map(|pair| {
            let [before, after] = [pair[0], pair[1]].map(Option::unwrap_or_default);
            format!("token {after} follows {before} in the ledger")
        })
    }

    /// The first and the last token.
    pub(crate) fn token_range(&self) -> String {
        let ends = [self.tokens.first(), self.tokens.last()].map(|token| token.copied().flatten().unwrap_or_default());
        format!("{} to {}", ends[0], ends[1])
    }
}
