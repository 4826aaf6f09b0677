//! Records and rows of unused keys: which of them a sweep deletes, and that locking goes on beside it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dlock::{Key, LockKey, Registry, Wait};
use dlock_contract::{Backend, Standing};
use dlock_testkit::holds::{claim_on, confirm, take, token};
use dlock_testkit::wait_until;
use dlock_testkit::{Mode, Proxy};
use futures::future::join_all;

use super::world::{World, registry};
use crate::row_kit::{Database, Store, open};

row_lock_cases! {
    an_unused_record_and_its_row_are_swept_and_the_next_token_is_above_theirs
    a_sweep_leaves_held_rows_and_goes_on_behind_them
    a_sweep_leaves_the_rows_of_a_table_of_the_users_own
    callers_and_a_busy_sweeper_do_not_disturb_each_other
    rows_without_a_record_are_swept_also_behind_one_that_somebody_keeps_locked
    one_sweep_over_a_slow_link_comes_to_its_end
}

const TTL: Duration = Duration::from_secs(30);

const OFTEN: &str = "way=row&sweep_every=50ms&sweep_after=1h";

/// As if two hours had passed since.
const LONG_AGO: &str = "UPDATE dlock_rows SET token = token - 7200000000";

const RECORDS: &str = "SELECT k FROM dlock_rows ORDER BY k";

async fn use_once(store: &Store, database: &Database, text: &str) -> u64 {
    let hold = take(store, &database.claim(text, TTL)).await;
    store.release(&hold).await.unwrap();
    token(&hold)
}

async fn sweeps(database: &Database, options: &str) -> Store {
    open(&format!("{}?{options}", database.url())).await.unwrap()
}

async fn an_unused_record_and_its_row_are_swept_and_the_next_token_is_above_theirs(database: Database) {
    let store = open(&database.url()).await.unwrap();
    use_once(&store, &database, "a").await;
    database.change(LONG_AGO).await;
    let old: u64 = database.lines("SELECT token FROM dlock_rows").await[0].parse().unwrap();
    let sweeps = sweeps(&database, OFTEN).await;
    let is_gone = async || database.lines("SELECT k FROM dlock_row_keys").await.is_empty();
    wait_until("the row is swept", is_gone).await.unwrap();
    assert_eq!(database.lines(RECORDS).await, [""; 0]);
    let swept: u64 = database.lines("SELECT number FROM dlock_meta WHERE name = 'swept'").await[0].parse().unwrap();
    assert!(swept >= old, "{swept} is below {old}");
    // As if the server's clock had been set back by an hour since then: its time alone would give a lower token.
    let ahead = 3 * 3_600_000_000;
    database.change(&format!("UPDATE dlock_meta SET number = number + {ahead} WHERE name = 'swept'")).await;
    let next = use_once(&sweeps, &database, "a").await;
    assert!(next > swept + ahead, "{next} after {}", swept + ahead);
}

/// The names of the held ones come first, so a sweep that ended at them would not reach the free one.
async fn a_sweep_leaves_held_rows_and_goes_on_behind_them(database: Database) {
    let store = open(&database.url()).await.unwrap();
    let held = take(&store, &database.claim("held", TTL)).await;
    let read = claim_on(&database.claim("held by readers", TTL).key, TTL, |claim| claim.mode = dlock::Mode::Read);
    let reader = take(&store, &read).await;
    use_once(&store, &database, "zzz").await;
    database.change(LONG_AGO).await;
    let _sweeps = sweeps(&database, OFTEN).await;
    let held_names = [reader.claim.key.as_str(), held.claim.key.as_str()];
    let rows = async || database.lines("SELECT k FROM dlock_row_keys ORDER BY k").await;
    wait_until("the free row is swept", async || rows().await == held_names).await.unwrap();
    assert_eq!(database.lines(RECORDS).await, held_names);
    for hold in [&held, &reader] {
        assert!(matches!(confirm(&store, hold).await, Standing::Renewed(_)));
        let state = store.look(&hold.claim.key).await.unwrap();
        assert_eq!(state.note(), Some(&hold.claim.note), "its record is gone");
        store.release(hold).await.unwrap();
    }
}

async fn a_sweep_leaves_the_rows_of_a_table_of_the_users_own(database: Database) {
    let world = World::new(database).await;
    world.database.change("INSERT INTO data VALUES (1, 0), (2, 0)").await;
    let own = "way=row&table=data&column=id";
    let store = sweeps(&world.database, own).await;
    use_once(&store, &world.database, "1").await;
    assert_eq!(world.database.lines(RECORDS).await, ["data.id=1"]);
    world.database.change(LONG_AGO).await;
    let _sweeps = sweeps(&world.database, &format!("{own}&sweep_every=50ms&sweep_after=1h")).await;
    wait_until("the record is swept", async || world.database.lines(RECORDS).await.is_empty()).await.unwrap();
    assert_eq!(world.data().await, ["1", "2"]);
    use_once(&store, &world.database, "1").await;
}

/// As a sweep leaves them that has ended between a record and its row, or a process that has made a row and died.
async fn rows_without_a_record_are_swept_also_behind_one_that_somebody_keeps_locked(database: Database) {
    open(&database.url()).await.unwrap();
    database.change("INSERT INTO dlock_row_keys VALUES ('a'), ('b')").await;
    let mut somebody = database.connect().await;
    let locks = "START TRANSACTION; SELECT k FROM dlock_row_keys WHERE k = 'a' FOR UPDATE";
    sqlx::raw_sql(locks).execute(&mut somebody).await.unwrap();
    let _sweeps = sweeps(&database, OFTEN).await;
    let rows = async || database.lines("SELECT k FROM dlock_row_keys ORDER BY k").await;
    wait_until("the free row is swept", async || rows().await == ["a"]).await.unwrap();
    drop(somebody);
    wait_until("all rows are swept", async || rows().await.is_empty()).await.unwrap();
}

async fn one_sweep_over_a_slow_link_comes_to_its_end(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let _sweeps = open(&format!("{url}?{OFTEN}")).await.unwrap();
    let way = Duration::from_millis(50);
    proxy.set(Mode::Delay { to_server: way, to_client: way });
    let keys: Vec<_> = (10..40).map(|key| format!("'{key}'")).collect();
    database.change(&format!("INSERT INTO dlock_row_keys VALUES ({})", keys.join("), ("))).await;
    let record = "(k, part, token, mode, session, xact, hold, note, long_key)";
    let rest = ", '', 1, 0, 0, 0, '', '', ''";
    let records: Vec<_> = keys.iter().map(|key| format!("({key}{rest})")).collect();
    database.change(&format!("INSERT INTO dlock_rows {record} VALUES {}", records.join(", "))).await;
    let count = async |table: &str| database.lines(&format!("SELECT k FROM {table}")).await.len();
    wait_until("a sweep has begun", async || count("dlock_rows").await < keys.len()).await.unwrap();
    // No other one begins.
    database.change("UPDATE dlock_meta SET number = 9000000000000000 WHERE name = 'sweep_rows'").await;
    let is_done = async || count("dlock_rows").await + count("dlock_row_keys").await == 0;
    wait_until("the sweep comes to its end", is_done).await.unwrap();
}

/// One key, as its callers see it.
struct Watched {
    key: &'static str,
    is_held: AtomicBool,
    last: AtomicU64,
}

impl Watched {
    fn new(key: &'static str) -> Self {
        Self { key, is_held: AtomicBool::new(false), last: AtomicU64::new(0) }
    }

    async fn use_once(&self, registry: &Registry) {
        let guard = registry.lock(self.key).wait(Wait::UpTo(TTL)).acquire().await.unwrap();
        assert!(!self.is_held.swap(true, Ordering::SeqCst), "two holders");
        let token = guard.fence().unwrap().get();
        let last = self.last.swap(token, Ordering::SeqCst);
        assert!(token > last, "{token} after {last}");
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2000))).await;
        self.is_held.store(false, Ordering::SeqCst);
        guard.release().await.unwrap();
    }
}

/// One key is used all the time. The other one is used again when its row was swept, by two processes at once.
async fn callers_and_a_busy_sweeper_do_not_disturb_each_other(database: Database) {
    let url = format!("{}?way=row&sweep_every=50ms&sweep_after=1ms", database.url());
    let registries = [registry(&database, &url).await, registry(&database, &url).await];
    let (busy, seldom, is_over) = (Watched::new("b"), Watched::new("a"), AtomicBool::new(false));
    let key = LockKey::new(&database.name, Key::text("a")).unwrap();
    let row = format!("SELECT k FROM dlock_row_keys WHERE k = '{key}'");
    let is_swept = async || database.lines(&row).await.is_empty();
    let seldom = join_all(registries.iter().map(async |registry| {
        for _ in 0..4 {
            seldom.use_once(registry).await;
            wait_until("the row is swept", is_swept).await.unwrap();
        }
    }));
    let busy = join_all(registries.iter().map(async |registry| {
        while !is_over.load(Ordering::SeqCst) {
            busy.use_once(registry).await;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..10))).await;
        }
    }));
    futures::join!(busy, async {
        seldom.await;
        is_over.store(true, Ordering::SeqCst);
    });
}
