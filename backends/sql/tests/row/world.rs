//! A program with row locks in a database of the case's own.

use dlock::{Held, Lock, Registry};
use sqlx::AssertSqlSafe;

use crate::row_kit::{Database, RowTransaction, open, transaction};

/// The error of bodies.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A process of its own, as far as the server can tell.
pub(crate) struct World {
    pub(crate) registry: Registry,
    pub(crate) database: Database,
}

impl World {
    /// With a table `data` for the work of bodies.
    pub(crate) async fn new(database: Database) -> Self {
        database.change("CREATE TABLE data (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)").await;
        let registry = registry(&database, &database.url()).await;
        Self { registry, database }
    }

    pub(crate) fn lock(&self) -> Lock {
        self.registry.lock("a")
    }

    /// The work that is in the database.
    pub(crate) async fn data(&self) -> Vec<String> {
        self.database.lines("SELECT id FROM data ORDER BY id").await
    }

    /// Waits until the lock is free, as another program sees it.
    pub(crate) async fn until_free(&self) {
        let other = registry(&self.database, &self.database.url()).await;
        other.lock("a").acquire().await.unwrap().release().await.unwrap();
    }
}

/// A program that reaches the server by this URL.
pub(crate) async fn registry(database: &Database, url: &str) -> Registry {
    let registry = Registry::new();
    registry.install("rows", open(url).await.unwrap()).unwrap();
    registry.set_default("rows").unwrap();
    registry.configure(|defaults| defaults.namespace = database.name.clone()).unwrap();
    registry
}

/// Runs a statement inside of the lock's transaction.
pub(crate) async fn run(tx: &mut RowTransaction, sql: &str) -> Result<(), Failure> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx.conn().await?).await?;
    Ok(())
}

/// A body that inserts a row of this number.
pub(crate) async fn insert(held: Held, id: u32) -> Result<u32, Failure> {
    run(&mut transaction(&held)?, &format!("INSERT INTO data VALUES ({id}, 0)")).await?;
    Ok(id)
}
