//! No room on the disk of the server's log of changes. The server ends itself then, and all its sessions.

use dlock::ErrorKind;
use dlock_contract::{Backend, Standing};
use dlock_testkit::holds::take;
use dlock_testkit::servers::{Postgres, on_small_disk};
use dlock_testkit::wait_until;

use crate::kit::{Database, TTL, start};
use crate::row_kit::{open, transaction_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_the_servers_log_renews_no_hold_and_commits_no_work() {
    let server = start(on_small_disk(Postgres::default(), "data/pg_wal", 48)).await;
    let database = Database::create(&server.url(), "log").await;
    database.change("CREATE TABLE filler (more TEXT)").await;
    let store = open(&database.url()).await.unwrap();
    let (idle, working) =
        (take(&store, &database.claim("idle", TTL)).await, take(&store, &database.claim("working", TTL)).await);
    let mut transaction = transaction_of(&working).unwrap();
    let mut conn = transaction.conn().await.unwrap();
    let fill = "INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 5000)";
    let mut filled = 0;
    while let Ok(done) = sqlx::raw_sql(fill).execute(&mut *conn).await {
        filled += done.rows_affected();
        assert!(filled < 1_000_000, "the disk was never full");
    }
    drop(conn);
    drop(transaction);
    for hold in [&working, &idle] {
        // The server ends the session that found no room, and then all others.
        let is_renewed = async || matches!(store.renew(&[hold]).await[..], [Ok(Standing::Renewed(_))]);
        wait_until("no renewal succeeds any more", async || !is_renewed().await).await.unwrap();
    }
    let error = store.settle().unwrap().settle(&working).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::CommitRefused | ErrorKind::CommitUnknown), "{error}");
}
