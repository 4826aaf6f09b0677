//! How the server finds what it is asked for: by names. If it reads a small table as a whole, it locks each row of it; if it reads
//! the catalogue as a whole, it opens every table.

use dlock::Clock;
use dlock_contract::{Backend, Standing};
use dlock_mysql::lease;
use dlock_testkit::holds::take;
use dlock_testkit::servers::Instance;
use dlock_testkit::wait_until;
use sqlx::{AssertSqlSafe, Row};

use super::cases::sweep::in_use_but_one;
use super::kit::{Database, TTL};
use crate::row_kit;

cases_with_own_server! { on both:
    a_locked_row_of_another_key_does_not_delay_a_renewal_of_several
    no_check_of_the_tables_reads_the_catalogue_of_all_databases
    a_sweep_reads_the_oldest_rows_and_not_those_in_use
}

async fn a_locked_row_of_another_key_does_not_delay_a_renewal_of_several(server: Instance, database: Database) {
    let (store, mut holds, mut somebody) = (database.store().await, Vec::new(), Vec::new());
    for number in 0..6 {
        let locked = take(&store, &database.claim(&format!("{number} locked"), TTL)).await;
        somebody.push(database.lock_row(locked.claim.key.as_str()).await);
        holds.push(take(&store, &database.claim(&number.to_string(), TTL)).await);
    }
    // No other test uses the server, so its counter is this one's.
    let waits = || server.ask("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'").unwrap();
    let before = waits();
    for answer in store.renew(&holds.iter().collect::<Vec<_>>()).await {
        assert!(matches!(answer, Ok(Standing::Renewed(_))), "{answer:?}");
    }
    assert_eq!(waits(), before, "the renewal waited for a row of another key");
}

/// MariaDB then opens every table of the server, at each start of a program and at each question after its state.
async fn no_check_of_the_tables_reads_the_catalogue_of_all_databases(server: Instance, database: Database) {
    server.ask("SET GLOBAL log_output = 'TABLE'").unwrap();
    server.ask("SET GLOBAL general_log = ON").unwrap();
    database.change("CREATE TABLE stock (sku INT PRIMARY KEY)").await;
    database.store().await.ready().await.unwrap();
    let url = |options: &str| format!("{}?{options}", database.url());
    // A way's own tables, since the namespace belongs to the first one.
    let rows = row_kit::open(&url("way=row&table=stock&column=sku&table_prefix=row_")).await.unwrap();
    rows.ready().await.unwrap();
    let shared =
        lease::open(&url("layout=shedlock&shedlock_create=yes&table_prefix=java_"), &Clock::system()).await.unwrap();
    shared.ready().await.unwrap();
    server.ask("SET GLOBAL general_log = OFF").unwrap();
    let sql = "SELECT DISTINCT argument FROM mysql.general_log WHERE command_type IN ('Query', 'Execute') \
               AND argument LIKE '%FROM information_schema.%' AND argument NOT LIKE '%general_log%'";
    let asked = database.lines(sql).await;
    for view in ["columns", "statistics"] {
        assert!(asked.iter().any(|sql| sql.contains(view)), "{view}: {asked:?}");
    }
    let mut conn = database.connect().await;
    for sql in asked {
        for row in sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN FORMAT=TRADITIONAL {sql}")))
            .fetch_all(&mut conn)
            .await
            .unwrap()
        {
            let extra: Option<String> = row.try_get("Extra").unwrap();
            let extra = extra.unwrap_or_default();
            // A list of the names of one database opens none of them.
            let opens = extra.contains("Scanned 1") && !extra.contains("Skip_open_table");
            assert!(!extra.contains("Scanned all") && !opens, "{sql}: {extra}");
        }
    }
}

async fn a_sweep_reads_the_oldest_rows_and_not_those_in_use(server: Instance, database: Database) {
    let _tables = database.store().await;
    database.change(&in_use_but_one(3000)).await;
    database.change("ANALYZE TABLE dlock_locks").await;
    server.ask("SET GLOBAL log_output = 'TABLE'").unwrap();
    server.ask("SET GLOBAL general_log = ON").unwrap();
    let _sweeps = database.store_with("sweep_every=50ms&sweep_after=2d").await;
    let count = async || database.number("SELECT COUNT(*) FROM dlock_locks").await;
    wait_until("the old row is swept", async || count().await == 3000).await.unwrap();
    server.ask("SET GLOBAL general_log = OFF").unwrap();
    let sql = "SELECT argument FROM mysql.general_log WHERE command_type = 'Execute' \
               AND argument LIKE 'SELECT k, token%' LIMIT 1";
    let [page] = &database.lines(sql).await[..] else { panic!("one page") };
    let mut conn = database.connect().await;
    let explain = AssertSqlSafe(format!("EXPLAIN FORMAT=TRADITIONAL {page}"));
    let plan = sqlx::raw_sql(explain).fetch_one(&mut conn).await.unwrap();
    let (index, extra): (Option<String>, Option<String>) =
        (plan.try_get("key").unwrap(), plan.try_get("Extra").unwrap());
    assert_eq!(index.as_deref(), Some("expires_day"), "{page}");
    assert!(!extra.unwrap_or_default().contains("filesort"), "{page}");
}
