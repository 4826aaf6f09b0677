//! Rows of a table of the user's own.

use std::time::Duration;

use dlock::{Error, ErrorKind, Key, Lock, Mode, Wait, distributed_lock};
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, take};
use dlock_testkit::wait_until;

use super::world::{World, registry, run};
use crate::row_kit::{Database, SLEEP, columns, open, running, transaction, transaction_of, waiting, waiting_for};

row_lock_cases! {
    rows_of_a_table_of_the_users_own_are_locked
    a_row_that_is_missing_is_an_error_of_its_own
    a_key_that_differs_from_its_row_is_missing
    held_rows_with_any_text_as_their_key_are_listed_and_can_be_broken
    a_table_that_cannot_be_locked_is_refused
    a_store_looks_at_the_table_again
    a_check_at_the_start_repeats_what_was_found
    readers_share_a_row_and_keep_writers_out
    a_writer_that_waits_has_its_turn_before_later_readers
    a_namespace_of_another_way_is_refused
    a_namespace_has_the_rows_of_one_table
    a_change_of_the_tables_definition_that_waits_ends_no_hold_and_keeps_no_session_standing
}

fn order(registry: &dlock::Registry, id: u32) -> Lock {
    registry.lock(Key::new().value(&id))
}

async fn rows_of_a_table_of_the_users_own_are_locked(database: Database) {
    let world = World::new(database).await;
    world.database.change("INSERT INTO data VALUES (1, 0), (2, 0)").await;
    let before = columns(&world.database, "data").await;
    let url = format!("{}?way=row&table=data&column=id", world.database.url());
    let (one, other) = (registry(&world.database, &url).await, registry(&world.database, &url).await);
    let guard = order(&one, 1).acquire().await.unwrap();
    assert_eq!(*order(&other, 1).try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
    order(&other, 2).try_acquire().await.unwrap().release().await.unwrap();
    // Somebody's own statement is kept out too.
    let nobody = "SELECT id FROM data WHERE id = 1 FOR UPDATE SKIP LOCKED";
    assert_eq!(world.database.lines(nobody).await, [""; 0]);
    let holders = order(&other, 1).holders().await.unwrap();
    assert_eq!(holders.holders.len(), 1);
    let mut tx = transaction(&guard).unwrap();
    run(&mut tx, "UPDATE data SET n = n + 1 WHERE id = 1").await.unwrap();
    drop(tx);
    guard.release().await.unwrap();
    assert_eq!(world.database.lines("SELECT n FROM data ORDER BY id").await, ["1", "0"]);
    assert_eq!(columns(&world.database, "data").await, before);
    assert_eq!(world.database.lines("SELECT k FROM dlock_rows ORDER BY k").await, ["data.id=1", "data.id=2"]);
}

async fn a_row_that_is_missing_is_an_error_of_its_own(database: Database) {
    let world = World::new(database).await;
    let url = format!("{}?way=row&table=data&column=id", world.database.url());
    let registry = registry(&world.database, &url).await;
    let error = order(&registry, 7).acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NoSuchRow);
    assert!(!error.is_retryable() && error.to_string().contains("data"), "{error}");
    let error = registry.lock("abc").acquire().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    world.database.change("INSERT INTO data VALUES (7, 0)").await;
    order(&registry, 7).acquire().await.unwrap().release().await.unwrap();
}

async fn a_key_that_differs_from_its_row_is_missing(database: Database) {
    database.change("CREATE TABLE products (sku VARCHAR(40) PRIMARY KEY, n INT NOT NULL)").await;
    database.change("INSERT INTO products VALUES ('abc', 0), ('b%_', 0)").await;
    let url = format!("{}?way=row&table=products&column=sku", database.url());
    let registry = registry(&database, &url).await;
    for sku in ["abc", "b%_"] {
        registry.lock(Key::new().value(sku)).acquire().await.unwrap().release().await.unwrap();
    }
    for sku in ["ABC", "äbc", "ab", "b", "a%", "'abc'"] {
        let error = registry.lock(Key::new().value(sku)).acquire().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NoSuchRow, "{sku}: {error}");
    }
    registry.lock(Key::new().value("abc")).acquire().await.unwrap().release().await.unwrap();
}

/// The names of records begin with the table's, and a long one ends in the middle of an `é` unless somebody minds.
async fn held_rows_with_any_text_as_their_key_are_listed_and_can_be_broken(database: Database) {
    let long = "é".repeat(150);
    let skus = ["abc", "äöü", &long];
    database.change("CREATE TABLE products (sku VARCHAR(200) PRIMARY KEY, n INT NOT NULL)").await;
    database.change(&format!("INSERT INTO products VALUES ('{}', 0)", skus.join("', 0), ('"))).await;
    let url = format!("{}?way=row&table=products&column=sku", database.url());
    let (one, other) = (registry(&database, &url).await, registry(&database, &url).await);
    let mut guards = Vec::new();
    for sku in skus {
        guards.push(one.lock(Key::new().value(sku)).acquire().await.unwrap());
    }
    let (mut listed, mut page) = (Vec::new(), other.locks().limit(1).page().await.unwrap());
    loop {
        listed.append(&mut page.locks);
        let Some(after) = page.next else { break };
        page = other.locks().limit(1).after(after).page().await.unwrap();
    }
    let mut keys: Vec<_> = listed.iter().map(|lock| &lock.key).collect();
    let mut held: Vec<_> = guards.iter().map(|guard| guard.key()).collect();
    keys.sort();
    held.sort();
    assert_eq!(keys, held);
    for (sku, guard) in skus.into_iter().zip(&guards) {
        let lock = listed.iter().find(|lock| &lock.key == guard.key()).unwrap();
        let id = lock.state.holders[0].id.unwrap();
        assert!(other.lock(Key::new().value(sku)).break_hold(id).by("alice").await.unwrap(), "{sku}");
        assert!(guard.confirm().await.unwrap_err().is_lost(), "{sku}");
    }
    assert!(other.locks().page().await.unwrap().locks.is_empty());
}

async fn a_table_that_cannot_be_locked_is_refused(database: Database) {
    for sql in [
        "CREATE TABLE bare (id BIGINT)",
        "CREATE TABLE pairs (id BIGINT, other BIGINT, PRIMARY KEY (id, other))",
        "CREATE TABLE floats (id DOUBLE PRECISION PRIMARY KEY)",
        "CREATE TABLE base (id BIGINT PRIMARY KEY)",
        "CREATE VIEW shown AS SELECT id FROM base",
    ]
    .into_iter()
    .chain(crate::row_kit::UNLOCKABLE)
    {
        database.change(sql).await;
    }
    let own = crate::row_kit::UNLOCKABLE.iter().map(|sql| sql.split(' ').nth(2).unwrap());
    for table in ["bare", "pairs", "floats", "shown", "nowhere"].into_iter().chain(own) {
        let url = format!("{}?way=row&table={table}&column=id", database.url());
        let error = open(&url).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{table}: {error}");
        assert!(error.to_string().contains(table), "{table}: {error}");
    }
    open(&format!("{}?way=row&table=base&column=id", database.url())).await.unwrap();
    let error = open(&format!("{}?way=row&table=base&column=other", database.url())).await.unwrap_err();
    assert!(error.to_string().contains("other"), "{error}");
}

async fn a_store_looks_at_the_table_again(database: Database) {
    database.change("CREATE TABLE jobs (id BIGINT NOT NULL)").await;
    database.change("CREATE UNIQUE INDEX only_one ON jobs (id)").await;
    let store = open(&format!("{}?way=row&table=jobs&column=id", database.url())).await.unwrap();
    store.ready().await.unwrap();
    database.change(crate::row_kit::DROP_INDEX).await;
    let error = store.ready().await.unwrap_err();
    assert!(error.to_string().contains("unique index"), "{error}");
}

/// Never called: `verify()` looks at it.
#[distributed_lock(key = "<job>", ttl = "1s", backend = "rows")]
async fn work(job: u64) -> Result<u64, Error> {
    Ok(job)
}

async fn a_check_at_the_start_repeats_what_was_found(database: Database) {
    database.change("CREATE TABLE jobs (id BIGINT NOT NULL)").await;
    let url = format!("{}?way=row&table=jobs&column=id", database.url());
    let registry = dlock::Registry::new();
    let refused = |part: &str| {
        let found = registry.verify().unwrap_err();
        let (site, error) = found.iter().next().unwrap();
        assert!(site.name().ends_with("work") && error.to_string().contains(part), "{found}");
        assert_eq!(error.backend(), Some("rows").filter(|_| part != "dlock::connect"), "{found}");
    };
    refused("dlock::connect");
    registry.connect("rows", &url).await.unwrap_err();
    refused("unique index");
    database.change("CREATE UNIQUE INDEX only_one ON jobs (id)").await;
    registry.connect("rows", &url).await.unwrap();
    registry.verify().unwrap();
    database.change(crate::row_kit::DROP_INDEX).await;
    // Nothing is asked.
    registry.verify().unwrap();
    registry.ready("rows").await.unwrap_err();
    refused("unique index");
    database.change("CREATE UNIQUE INDEX only_one ON jobs (id)").await;
    registry.ready("rows").await.unwrap();
    registry.verify().unwrap();
}

async fn readers_share_a_row_and_keep_writers_out(database: Database) {
    let world = World::new(database).await;
    let other = registry(&world.database, &world.database.url()).await;
    let one = world.lock().mode(Mode::Read).acquire().await.unwrap();
    let two = other.lock("a").mode(Mode::Read).try_acquire().await.unwrap();
    assert_eq!(other.lock("a").holders().await.unwrap().holders.len(), 2);
    assert_eq!(*other.lock("a").mode(Mode::Write).try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
    one.release().await.unwrap();
    two.release().await.unwrap();
    other.lock("a").mode(Mode::Write).acquire().await.unwrap().release().await.unwrap();
}

async fn a_writer_that_waits_has_its_turn_before_later_readers(database: Database) {
    let world = World::new(database).await;
    let other = registry(&world.database, &world.database.url()).await;
    let first = world.lock().mode(Mode::Read).acquire().await.unwrap();
    let waits = other.lock("a").mode(Mode::Write).wait(Wait::UpTo(Duration::from_secs(3600)));
    let writer = tokio::spawn(waits.acquire());
    wait_until("the writer waits", async || waiting(&world.database).await == 1).await.unwrap();
    // Readers that come again and again would keep it out for ever.
    let late = world.lock().mode(Mode::Read).try_acquire().await.unwrap_err();
    assert_eq!(*late.kind(), ErrorKind::Busy);
    first.release().await.unwrap();
    writer.await.unwrap().unwrap().release().await.unwrap();
    world.lock().mode(Mode::Read).acquire().await.unwrap().release().await.unwrap();
}

async fn a_namespace_of_another_way_is_refused(database: Database) {
    let world = World::new(database).await;
    world.lock().acquire().await.unwrap().release().await.unwrap();
    world.registry.install("lease", crate::row_kit::lease(&world.database.url()).await).unwrap();
    let error = world.lock().backend("lease").acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SchemaMismatch);
    assert!(error.to_string().contains("way=row"), "{error}");
}

/// One key is one lock, whatever else the URL says.
async fn a_namespace_has_the_rows_of_one_table(database: Database) {
    let world = World::new(database).await;
    world.database.change("CREATE TABLE jobs (id BIGINT PRIMARY KEY, n BIGINT NOT NULL UNIQUE)").await;
    for table in ["data", "jobs"] {
        world.database.change(&format!("INSERT INTO {table} VALUES (1, 1)")).await;
    }
    let at = async |more: &str| registry(&world.database, &format!("{}?way=row{more}", world.database.url())).await;
    let first = at("&table=jobs&column=id").await;
    let guard = order(&first, 1).acquire().await.unwrap();
    for other in ["", "&table=data&column=id", "&table=jobs&column=n"] {
        let error = order(&at(other).await, 1).try_acquire().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{other}: {error}");
        assert!(error.to_string().contains(".jobs.id"), "{error}");
    }
    assert_eq!(*order(&at("&table=jobs&column=id").await, 1).try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
    guard.release().await.unwrap();
}

async fn a_change_of_the_tables_definition_that_waits_ends_no_hold_and_keeps_no_session_standing(database: Database) {
    let world = World::new(database).await;
    world.database.change("INSERT INTO data VALUES (1, 0), (2, 0)").await;
    let url = format!("{}?way=row&table=data&column=id", world.database.url());
    let (store, other) = (open(&url).await.unwrap(), open(&url).await.unwrap());
    let claim = |id: u32| {
        let key = dlock::LockKey::new(&world.database.name, Key::new().value(&id)).unwrap();
        claim_on(&key, std::time::Duration::from_secs(3600), |_| ())
    };
    let hold = take(&store, &claim(1)).await;
    let mut tx = transaction_of(&hold).unwrap();
    let mut conn = tx.conn().await.unwrap();
    let mut changing = world.database.connect().await;
    let change = tokio::spawn(async move {
        sqlx::raw_sql("ALTER TABLE data ADD COLUMN more INT").execute(&mut changing).await.map(drop)
    });
    waiting_for(&world.database, "ALTER TABLE data").await;
    // The server shows the change before it waits, and lets others in until then.
    let waits = async || match other.try_acquire(&claim(2), Queue::Leave).await {
        Ok(Attempt::Acquired(early)) => {
            other.release(&early).await.unwrap();
            false
        }
        // Nobody holds this row.
        Err(error) => {
            assert_eq!(*error.kind(), ErrorKind::Outage, "{error}");
            true
        }
        Ok(refused) => panic!("nobody holds it: {refused:?}"),
    };
    dlock_testkit::wait_until("the change waits", waits).await.unwrap();
    let waits = async || running(&world.database, "id\" = ").await + running(&world.database, "id` = ").await;
    dlock_testkit::wait_until("no session stands in the server", async || waits().await == 0).await.unwrap();
    let sleeps = SLEEP.replace('$', "3");
    let sleeping = async { sqlx::raw_sql(sqlx::AssertSqlSafe(sleeps)).execute(&mut *conn).await.unwrap() };
    let (_, standing) = tokio::join!(sleeping, confirm(&store, &hold));
    assert!(matches!(standing, Standing::Renewed(_)));
    drop(conn);
    drop(tx);
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    change.await.unwrap().unwrap();
}
