//! The resource that the locks protect: one value that takes only writes with a fencing token, by the helpers of
//! [`dlock::fenced`].

use std::path::Path;

use dlock::{Fence, fenced};
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};

use crate::store::Store;

/// The name of the value.
const LEDGER: &str = "ledger";

/// Where it is; processes hand it on as its URL.
pub(crate) struct Resource {
    pub(crate) url: String,
}

impl Resource {
    /// In the store itself if there are helpers for it, otherwise in a file.
    pub(crate) fn beside(store: Store, url: &str, folder: &Path) -> Self {
        let url = match store {
            Store::Redis | Store::MariaDb | Store::MySql | Store::Postgres => url.to_owned(),
            // The locks' own part of the URL means nothing to the client.
            _ if store.is_session() => url.split('?').next().unwrap().to_owned(),
            Store::Paired => url.split(' ').nth(1).unwrap().to_owned(),
            _ => format!("sqlite://{}?mode=rwc", folder.join("resource.db").display()),
        };
        Self { url }
    }

    /// Writes, or is refused.
    pub(crate) async fn write(&self, fence: &Fence, value: &str) -> dlock::Result<()> {
        const REPLACE: &str = "REPLACE INTO ledger (id, value) VALUES (1, ?)";
        match self.url.split(':').next().unwrap() {
            "redis" => {
                let client = redis::Client::open(self.url.as_str()).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                fenced::redis::set(&mut connection, fence, &self.name(fence), value).await
            }
            "mysql" => {
                let mut connection = MySqlConnection::connect(&self.url).await.unwrap();
                let table = "CREATE TABLE IF NOT EXISTS ledger (id INT PRIMARY KEY, value VARCHAR(99) NOT NULL)";
                fenced::mysql::prepare(&mut connection).await?;
                sqlx::query(table).execute(&mut connection).await.unwrap();
                let mut transaction = connection.begin().await.unwrap();
                fenced::mysql::admit(&mut transaction, fence, LEDGER).await?;
                sqlx::query(REPLACE).bind(value).execute(&mut *transaction).await.unwrap();
                transaction.commit().await.unwrap();
                Ok(())
            }
            "postgres" => {
                let mut connection = PgConnection::connect(&self.url).await.unwrap();
                let table = "CREATE TABLE IF NOT EXISTS ledger (id INT PRIMARY KEY, value TEXT NOT NULL)";
                let replace = "INSERT INTO ledger (id, value) VALUES (1, $1) \
                     ON CONFLICT (id) DO UPDATE SET value = excluded.value";
                fenced::postgres::prepare(&mut connection).await?;
                sqlx::query(table).execute(&mut connection).await.unwrap();
                let mut transaction = connection.begin().await.unwrap();
                fenced::postgres::admit(&mut transaction, fence, LEDGER).await?;
                sqlx::query(replace).bind(value).execute(&mut *transaction).await.unwrap();
                transaction.commit().await.unwrap();
                Ok(())
            }
            _ => {
                let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
                let table = "CREATE TABLE IF NOT EXISTS ledger (id INTEGER PRIMARY KEY, value TEXT NOT NULL)";
                fenced::sqlite::prepare(&mut connection).await?;
                sqlx::query(table).execute(&mut connection).await.unwrap();
                let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
                fenced::sqlite::admit(&mut transaction, fence, LEDGER).await?;
                sqlx::query(REPLACE).bind(value).execute(&mut *transaction).await.unwrap();
                transaction.commit().await.unwrap();
                Ok(())
            }
        }
    }

    /// The value that was written last.
    pub(crate) async fn read(&self, fence: &Fence) -> String {
        const SELECT: &str = "SELECT value FROM ledger WHERE id = 1";
        match self.url.split(':').next().unwrap() {
            "redis" => {
                let client = redis::Client::open(self.url.as_str()).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                redis::cmd("GET").arg(self.name(fence)).query_async(&mut connection).await.unwrap()
            }
            "mysql" => {
                let mut connection = MySqlConnection::connect(&self.url).await.unwrap();
                sqlx::query_scalar(SELECT).fetch_one(&mut connection).await.unwrap()
            }
            "postgres" => {
                let mut connection = PgConnection::connect(&self.url).await.unwrap();
                sqlx::query_scalar(SELECT).fetch_one(&mut connection).await.unwrap()
            }
            _ => {
                let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
                sqlx::query_scalar(SELECT).fetch_one(&mut connection).await.unwrap()
            }
        }
    }

    /// Trials share a Redis, so the value's name there is made of the lock's, in other letters than the locks' own.
    fn name(&self, fence: &Fence) -> String {
        format!("{LEDGER} under {}", fence.key().as_str().replace(':', "/"))
    }
}
