//! The states of a server's sessions at this moment.
//!
//! MySQL answers queries of `information_schema.PROCESSLIST` and `INNODB_TRX` with error 3854 while any session of the server runs a
//! statement with bytes that are no text. Tests share the server. The statements `SHOW …` have no such limit.

use dlock_testkit::wait_until;
use sqlx::mysql::MySqlRow;
use sqlx::{Connection, Executor, Row};

use crate::server::{Database, Kind};

/// A session that is in the database of the case.
pub(crate) struct Process {
    pub id: String,
    pub state: String,
    /// The statement that runs, or nothing.
    pub statement: String,
}

impl Database {
    /// The sessions in this database. The one that asks is in none.
    pub(crate) async fn processes(&self) -> Vec<Process> {
        let mut conn = self.outside().await;
        let rows = sqlx::raw_sql("SHOW FULL PROCESSLIST").fetch_all(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        let ours = rows.iter().filter(|row| text(row, "db") == self.name);
        let process = |row| Process { id: text(row, "Id"), state: text(row, "State"), statement: text(row, "Info") };
        ours.map(process).collect()
    }

    /// The sessions of this database whose statement has this text.
    pub(crate) async fn running(&self, part: &str) -> Vec<Process> {
        let mut running = self.processes().await;
        running.retain(|process| process.statement.contains(part));
        running
    }

    /// The sessions of this database that are in a transaction.
    pub(crate) async fn in_transactions(&self) -> Vec<String> {
        self.transactions(|_| true).await
    }

    /// The sessions of this database that wait for a row.
    pub(crate) async fn in_row_waits(&self) -> Vec<String> {
        self.transactions(|lines| lines.contains("\nLOCK WAIT ")).await
    }

    /// `INNODB_TRX` is read anew only if nobody has read it for 0.1 s, so several who wait for a change may wait for ever. The
    /// monitor's text is always new.
    async fn transactions(&self, are_such: fn(&str) -> bool) -> Vec<String> {
        let mut conn = self.outside().await;
        let status = sqlx::raw_sql("SHOW ENGINE INNODB STATUS").fetch_one(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        let status = text(&status, "Status");
        let (_, list) = status.split_once("LIST OF TRANSACTIONS FOR EACH SESSION:").unwrap();
        let such = list.split("---TRANSACTION ").filter(|lines| is_active(lines) && are_such(lines));
        let sessions: Vec<_> = such.filter_map(session).collect();
        let ours = self.processes().await.into_iter().map(|process| process.id);
        ours.filter(|id| sessions.contains(&&**id)).collect()
    }
}

/// Such as `4711, ACTIVE 2 sec starting index read`, and not `4711, not started`.
fn is_active(lines: &str) -> bool {
    lines.lines().next().is_some_and(|first| first.contains(", ACTIVE "))
}

/// The number in `MySQL thread id 12, OS thread handle …`.
fn session(lines: &str) -> Option<&str> {
    lines.split_once(" thread id ")?.1.split_once(',').map(|(id, _)| id)
}

/// `NULL` is an empty text.
fn text(row: &MySqlRow, column: &str) -> String {
    let bytes: Option<Vec<u8>> = row.try_get_unchecked(column).unwrap();
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

/// The store's own statements have such bytes, and other cases run beside this one.
#[tokio::test]
async fn a_statement_with_bytes_that_are_no_text_does_not_hide_the_sessions() {
    for kind in [Kind::MariaDb, Kind::MySql] {
        let database = Database::create(&kind.shared().unwrap(), "bytes").await;
        let mut conn = database.connect().await;
        let sleeping = tokio::spawn(async move {
            let sleeps = sqlx::query("SELECT SLEEP(60), ? AS it_sleeps").bind(&b"\xff\xfe\x80"[..]);
            sleeps.fetch_all(&mut conn).await.map(drop)
        });
        wait_until("the statement runs", async || database.running("it_sleeps").await.len() == 1).await.unwrap();
        assert_eq!(database.in_row_waits().await, [""; 0]);
        assert_eq!(database.end_sessions().await, 1);
        sleeping.await.unwrap().unwrap_err();
    }
}

#[tokio::test]
async fn a_transaction_and_its_wait_for_a_row_are_seen() {
    for kind in [Kind::MariaDb, Kind::MySql] {
        let database = Database::create(&kind.shared().unwrap(), "waits").await;
        let mut holder = database.connect().await;
        holder.execute("CREATE TABLE data (id INT PRIMARY KEY); INSERT INTO data VALUES (1)").await.unwrap();
        assert_eq!(database.in_transactions().await, [""; 0]);
        holder.execute("START TRANSACTION; SELECT id FROM data FOR UPDATE").await.unwrap();
        assert_eq!(database.in_transactions().await.len(), 1);
        assert_eq!(database.in_row_waits().await, [""; 0]);
        let mut waiter = database.connect().await;
        let waiting = tokio::spawn(async move { waiter.execute("SELECT id FROM data FOR UPDATE").await.map(drop) });
        wait_until("the second one waits", async || database.in_row_waits().await.len() == 1).await.unwrap();
        assert_eq!(database.in_transactions().await.len(), 2);
        holder.execute("COMMIT").await.unwrap();
        waiting.await.unwrap().unwrap();
        let is_over = async || database.in_transactions().await.is_empty();
        wait_until("no transaction is left", is_over).await.unwrap();
    }
}
