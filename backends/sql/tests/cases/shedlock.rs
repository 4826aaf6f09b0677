//! Locks in ShedLock's table, beside Java nodes. Their statements are those that ShedLock sends with `usingDbTime()`; the real
//! library runs in `cargo xtask interop`.

use std::time::Duration;

use dlock::{ErrorKind, Registry};
use dlock_contract::{
    Attempt, Backend, HoldId, Inspect, Keeps, Listing, Note, Periods, Queue, Released, RunEnd, Standing,
};
use dlock_testkit::holds::{confirm, take, token};
use dlock_testkit::servers::Instance;

use super::kit::{self, Database, JAVA_INSERT, JAVA_NOW, JAVA_SESSION, Store, TTL, java_until, try_open};
use super::support::{attempt, is_refused};

row_cases! {
    a_java_node_and_ours_keep_each_other_out
    a_holder_stands_in_the_table_as_host_and_hold_id_and_no_java_unlock_frees_it
    a_hold_that_a_java_node_took_over_is_lost_and_the_java_node_keeps_it
    a_kept_key_keeps_java_nodes_out
    a_period_that_a_java_node_has_started_is_not_started_again
    a_java_holder_is_shown_and_listed_and_is_nobody_s_to_break
    java_nodes_and_ours_lose_no_count
    the_table_is_shedlock_s_own_or_another_one_that_the_url_names
    a_missing_table_is_made_only_if_the_url_says_so
    a_table_that_differs_in_case_alone_is_named_by_an_error_and_can_be_used
    a_table_that_cannot_hold_locks_is_refused
    a_row_that_was_locked_in_the_future_is_a_finding
    a_namespace_has_one_layout
    the_layout_is_off_unless_the_url_asks_for_it
    a_name_that_the_table_does_not_take_is_refused
    an_account_needs_no_more_than_to_read_insert_and_update
}

cases_with_own_server! {
    a_server_in_another_time_zone_makes_no_difference
}

const HOUR: Duration = Duration::from_secs(3600);

impl Database {
    async fn shed(&self) -> Store {
        self.store_with("layout=shedlock&shedlock_create=yes").await
    }

    /// A Java node with this value of `locked_by` asks once. True if it has the lock then.
    async fn java_locks(&self, name: &str, node: &str, seconds: u32) -> bool {
        let (now, until) = (JAVA_NOW, java_until(seconds));
        let insert = JAVA_INSERT.replace("{values}", &format!("'{name}', {until}, {now}, '{node}'"));
        self.change(&format!(
            "{JAVA_SESSION}{insert}; UPDATE shedlock SET lock_until = {until}, locked_at = {now}, locked_by = '{node}' \
             WHERE name = '{name}' AND lock_until <= {now}"
        ))
        .await;
        self.locked_by(name).await.as_deref() == Some(node)
    }

    async fn java_unlocks(&self, name: &str, node: &str) {
        let unlock = format!(
            "{JAVA_SESSION}UPDATE shedlock SET lock_until = {JAVA_NOW} WHERE name = '{name}' AND locked_by = '{node}'"
        );
        self.change(&unlock).await;
    }

    /// Who holds the lock, by the table.
    async fn locked_by(&self, name: &str) -> Option<String> {
        let held =
            format!("{JAVA_SESSION}SELECT locked_by FROM shedlock WHERE name = '{name}' AND lock_until > {JAVA_NOW}");
        self.lines(&held).await.pop()
    }

    async fn shed_expires(&self) {
        self.change("UPDATE shedlock SET lock_until = '2001-01-01'").await;
    }
}

async fn a_java_node_and_ours_keep_each_other_out(database: Database) {
    let store = database.shed().await;
    assert!(database.java_locks("job", "vm", 60).await, "a lock that nobody has");
    is_refused(&store, &database.claim("job", TTL)).await;
    let Attempt::Contended(wake) = store.try_acquire(&database.claim("job", TTL), Queue::Leave).await.unwrap() else {
        panic!("two holders");
    };
    assert!(wake.lease_left.unwrap() > Duration::from_secs(30) && wake.ask_by.is_some(), "{wake:?}");
    assert_eq!(wake.held_by.unwrap().as_str(), Note::FOREIGN_CLIENT);
    database.java_unlocks("job", "vm").await;

    let hold = take(&store, &database.claim("job", TTL)).await;
    assert!(!database.java_locks("job", "vm", 60).await, "two holders");
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    is_refused(&database.shed().await, &database.claim("job", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    assert!(database.java_locks("job", "vm", 60).await, "a lock that was released");
    database.java_unlocks("job", "vm").await;
    let next = take(&store, &database.claim("job", TTL)).await;
    assert!(token(&next) > token(&hold));
    // A release never deletes ShedLock's row.
    assert_eq!(store.release(&next).await.unwrap(), Released::Released);
    assert_eq!(database.number("SELECT COUNT(*) FROM shedlock").await, 1);
}

async fn a_holder_stands_in_the_table_as_host_and_hold_id_and_no_java_unlock_frees_it(database: Database) {
    let store = database.shed().await;
    let hold = take(&store, &database.claim("job", TTL)).await;
    let host = hold.claim.note.host().unwrap();
    let locked_by = database.locked_by("job").await.unwrap();
    assert_eq!(locked_by, format!("{host}#{}", HoldId::of(&hold.claim.owner)));
    // Each is a late unlock of a JVM of this host.
    database.java_unlocks("job", host).await;
    assert_eq!(database.locked_by("job").await, Some(locked_by));
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
}

async fn a_hold_that_a_java_node_took_over_is_lost_and_the_java_node_keeps_it(database: Database) {
    let store = database.shed().await;
    let hold = take(&store, &database.claim("job", TTL)).await;
    database.shed_expires().await;
    assert!(matches!(confirm(&store, &hold).await, Standing::Lost), "a lease that has ended was renewed");
    assert!(database.java_locks("job", "vm", 60).await);
    assert!(matches!(confirm(&store, &hold).await, Standing::Lost));
    assert_eq!(store.release(&hold).await.unwrap(), Released::NotOwner);
    assert_eq!(store.keep(&hold, HOUR, None).await.unwrap(), Released::NotOwner);
    store.abandon(&hold.claim).await.unwrap();
    assert_eq!(database.locked_by("job").await.as_deref(), Some("vm"));
}

async fn a_kept_key_keeps_java_nodes_out(database: Database) {
    let store = database.shed().await;
    let hold = take(&store, &database.claim("job", TTL)).await;
    assert_eq!(store.keep(&hold, HOUR, None).await.unwrap(), Released::Released);
    assert!(!database.java_locks("job", "vm", 60).await, "a kept key was taken");
    assert_eq!(store.release(&hold).await.unwrap(), Released::NotOwner);
    assert!(database.locked_by("job").await.is_some());
}

async fn a_period_that_a_java_node_has_started_is_not_started_again(database: Database) {
    // The longest period that has its edge far from now, whenever the test runs: half of it is longer than the test.
    let (store, period) = (database.shed().await, Duration::from_secs(10 * 365 * 24 * 3600));
    let asked = async |text: &str| store.try_acquire(&database.run_claim(text, period), Queue::Leave).await.unwrap();
    assert!(database.java_locks("job", "vm", 60).await);
    assert!(matches!(asked("job").await, Attempt::AlreadyRun), "while a Java node runs it");
    database.java_unlocks("job", "vm").await;
    assert!(matches!(asked("job").await, Attempt::AlreadyRun), "after a Java node ran it");
    database.change("UPDATE shedlock SET locked_at = '2001-01-01'").await;
    let Attempt::Acquired(run) = asked("job").await else { panic!("a run of an earlier period counted") };
    assert_eq!(store.end_run(&run, RunEnd::Succeeded { took: TTL }).await.unwrap(), Released::Released);
    assert!(matches!(asked("job").await, Attempt::AlreadyRun));
    assert_eq!(store.last_success(&run.claim.key).await.unwrap().unwrap().took, TTL);
    // ShedLock knows no periods.
    assert!(database.java_locks("job", "vm", 60).await);
}

async fn a_java_holder_is_shown_and_listed_and_is_nobody_s_to_break(database: Database) {
    let store = database.shed().await;
    assert!(database.java_locks("theirs", "vm", 60).await);
    let hold = take(&store, &database.claim("ours", TTL)).await;
    let theirs = store.look(&kit::key(&database, "theirs")).await.unwrap();
    assert_eq!((theirs.holders[0].note.as_str(), theirs.holders[0].id), (Note::FOREIGN_CLIENT, None));
    let ours = store.look(&hold.claim.key).await.unwrap();
    assert_eq!((ours.note(), ours.holders[0].token), (Some(&hold.claim.note), Some(token(&hold))));
    let listing = Listing::of(&database.name);
    let listed: Vec<_> = store.list(&listing).await.unwrap().locks.iter().map(|key| key.as_str().to_owned()).collect();
    assert_eq!(listed, ["ours", "theirs"]);
    let record = dlock_contract::BreakRecord::new("ann", 1, "stuck");
    let id = ours.holders[0].id.unwrap();
    assert!(!store.break_hold(&kit::key(&database, "theirs"), id, &record).await.unwrap());
    assert!(store.break_hold(&hold.claim.key, id, &record).await.unwrap());
    assert!(matches!(confirm(&store, &hold).await, Standing::Lost));
    assert_eq!(store.record_of(&hold).await.unwrap(), Some(record));
    assert_eq!(database.locked_by("theirs").await.as_deref(), Some("vm"));
}

/// Each holder reads a number and writes it back larger, so two holders at a time lose a count.
async fn java_nodes_and_ours_lose_no_count(database: Database) {
    const EACH: usize = 12;
    database.change("CREATE TABLE counted (number INT NOT NULL)").await;
    database.change("INSERT INTO counted VALUES (0)").await;
    let store = database.shed().await;
    let count = async || {
        let number = database.number("SELECT number FROM counted").await;
        database.change(&format!("UPDATE counted SET number = {}", number + 1)).await;
    };
    let ours = async || {
        for _ in 0..EACH {
            let hold = loop {
                if let Some(hold) = attempt(&store, &database.claim("job", TTL)).await.unwrap() {
                    break hold;
                }
            };
            count().await;
            assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        }
    };
    let theirs = async |node: &'static str| {
        for _ in 0..EACH {
            while !database.java_locks("job", node, 60).await {}
            count().await;
            database.java_unlocks("job", node).await;
        }
    };
    futures::join!(ours(), ours(), theirs("vm1"), theirs("vm2"));
    assert_eq!(database.number("SELECT number FROM counted").await, 4 * EACH as i64);
}

async fn the_table_is_shedlock_s_own_or_another_one_that_the_url_names(database: Database) {
    let store = database.store_with("layout=shedlock&shedlock_table=jobs_of_java&shedlock_create=yes").await;
    take(&store, &database.claim("job", TTL)).await;
    assert_eq!(database.lines("SELECT name FROM jobs_of_java").await, ["job"]);
    // Two tables are two locks, under the name of one namespace.
    let other = database.shed().await;
    let error = other.try_acquire(&database.claim("job", TTL), Queue::Leave).await.unwrap_err();
    assert!(error.to_string().contains("jobs_of_java"), "{error}");
    assert_eq!(database.number("SELECT COUNT(*) FROM shedlock").await, 0);
    for wrong in ["a-b", "a'b", "", "a..b", "a.b.c"] {
        let url = format!("{}?layout=shedlock&shedlock_table={wrong}", database.url());
        let error = try_open(&url).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{wrong}: {error}");
        assert!(error.to_string().contains("shedlock_table"), "{error}");
    }
}

async fn a_missing_table_is_made_only_if_the_url_says_so(database: Database) {
    let error = try_open(&format!("{}?layout=shedlock", database.url())).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
    assert!(error.to_string().contains("shedlock_create=yes"), "{error}");
    drop(database.shed().await);
    try_open(&format!("{}?layout=shedlock", database.url())).await.unwrap();
}

async fn a_table_that_differs_in_case_alone_is_named_by_an_error_and_can_be_used(database: Database) {
    database.change(&kit::RIGHT_SHEDLOCK[0].replace("shedlock", kit::LARGE_SHEDLOCK)).await;
    for create in ["", "&shedlock_create=yes"] {
        let error = try_open(&format!("{}?layout=shedlock{create}", database.url())).await.unwrap_err();
        assert!(error.to_string().contains(".SHEDLOCK`"), "{error}");
    }
    let store = database.store_with("layout=shedlock&shedlock_table=SHEDLOCK").await;
    let hold = take(&store, &database.claim("job", TTL)).await;
    assert_eq!(database.lines(&format!("SELECT name FROM {}", kit::LARGE_SHEDLOCK)).await, ["job"]);
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn a_table_that_cannot_hold_locks_is_refused(database: Database) {
    for (wrong, why) in kit::WRONG_SHEDLOCK {
        database.change(wrong).await;
        let mut told = Vec::new();
        // Each error has the statement that mends its fault.
        while let Err(error) = try_open(&format!("{}?layout=shedlock", database.url())).await {
            assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{wrong}: {error}");
            let text = error.message().to_owned();
            database.change(&text[text.find("ALTER TABLE").expect(&text)..]).await;
            assert!(!told.contains(&text), "{wrong}: {text}");
            told.push(text);
        }
        assert!(told.first().is_some_and(|text| text.contains(why)), "{wrong}: {told:?}");
        database.change("DROP TABLE shedlock").await;
    }
    for right in kit::RIGHT_SHEDLOCK {
        database.change(right).await;
        let store = database.shed().await;
        let hold = take(&store, &database.claim("Job", TTL)).await;
        assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)), "{right}");
        assert!(!database.java_locks("Job", "vm", 60).await, "{right}");
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        assert!(database.java_locks("Job", "vm", 60).await, "{right}");
        database.change("DROP TABLE shedlock").await;
        let error = store.ready().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
    }
}

async fn a_row_that_was_locked_in_the_future_is_a_finding(database: Database) {
    let store = database.shed().await;
    let is_found = async || store.ready().await.unwrap().findings.iter().any(|finding| finding.contains("usingDbTime"));
    assert!(database.java_locks("job", "vm", 60).await);
    assert!(!is_found().await, "by the database's time");
    // As of a JVM whose zone is east of UTC.
    database.change("UPDATE shedlock SET locked_at = '2037-01-01'").await;
    assert!(is_found().await);
}

async fn a_namespace_has_one_layout(database: Database) {
    let hold = take(&database.shed().await, &database.claim("job", TTL)).await;
    let error = database.store().await.try_acquire(&hold.claim, Queue::Leave).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
    assert!(error.to_string().contains("shedlock"), "{error}");
}

async fn the_layout_is_off_unless_the_url_asks_for_it(database: Database) {
    let store = database.store().await;
    let hold = take(&store, &database.claim("job", TTL)).await;
    assert_eq!(database.lines("SELECT k FROM dlock_locks").await, [hold.claim.key.as_str()]);
    let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'shedlock' AND table_schema IN ";
    assert_eq!(database.number(&format!("{tables} ('public', '{}')", database.name)).await, 0);
    for (options, why) in [
        ("shedlock_table=jobs", "layout=shedlock"),
        ("way=named&layout=shedlock", "way=lease"),
        ("way=row&layout=shedlock", "way=lease"),
    ] {
        let url = format!("{}?{options}", database.url());
        let error = Registry::new().connect("default", &url).await.unwrap_err();
        assert!(error.to_string().contains(why), "{options}: {error}");
    }
}

async fn a_name_that_the_table_does_not_take_is_refused(database: Database) {
    let store = database.shed().await;
    for text in ["x".repeat(65), "\u{1F512}".repeat(64), "two words".to_owned()] {
        let claim = database.claim(&text, TTL);
        for error in [
            store.identify(&claim.key).unwrap_err(),
            store.try_acquire(&claim, Queue::Leave).await.unwrap_err(),
            store.look(&claim.key).await.unwrap_err(),
        ] {
            assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }) && !error.is_retryable(), "{text}: {error}");
        }
        // Nothing of it is there.
        store.abandon(&claim).await.unwrap();
    }
    let longest = take(&store, &database.claim(&"x".repeat(64), TTL)).await;
    assert_eq!(store.release(&longest).await.unwrap(), Released::Released);
}

async fn an_account_needs_no_more_than_to_read_insert_and_update(database: Database) {
    const RIGHTS: &str = "SELECT, INSERT, UPDATE";
    database.migrate().await;
    drop(database.shed().await);
    let ours = [(RIGHTS, "dlock_locks"), (RIGHTS, "dlock_breaks"), (RIGHTS, "dlock_meta")];
    let with = async |rights: &'static str| database.account_with(&[&ours[..], &[(rights, "shedlock")]].concat()).await;
    let store = try_open(&format!("{}?layout=shedlock", with(RIGHTS).await)).await.unwrap();
    let hold = take(&store, &database.claim("job", TTL)).await;
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    store.ready().await.unwrap();
    for few in ["SELECT, INSERT", "SELECT, UPDATE"] {
        let error = try_open(&format!("{}?layout=shedlock", with(few).await)).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{few}: {error}");
    }
}

async fn a_server_in_another_time_zone_makes_no_difference(_server: Instance, database: Database) {
    for (number, zone) in kit::ZONES.iter().enumerate() {
        database.change(&zone.replace("{database}", &database.name)).await;
        let (store, name) = (database.shed().await, format!("job{number}"));
        let hold = take(&store, &database.claim(&name, TTL)).await;
        assert!(!database.java_locks(&name, "vm", 60).await, "{zone}: two holders");
        assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)), "{zone}");
        let left = store.look(&hold.claim.key).await.unwrap().holders[0].lease_left.unwrap();
        assert!(left > TTL / 2 && left <= TTL + Duration::from_millis(2), "{zone}: {left:?} of {TTL:?}");
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        assert!(database.java_locks(&name, "vm", 60).await, "{zone}: a free lock");
        is_refused(&store, &database.claim(&name, TTL)).await;
        assert!(!names_the_zone(&store).await, "times without a zone");
        store.close().await;
        database.change("DROP TABLE shedlock").await;
    }
    database.change(kit::RIGHT_SHEDLOCK[0]).await;
    assert_eq!(names_the_zone(&database.shed().await).await, kit::TIMESTAMPS_HAVE_A_ZONE);
}

async fn names_the_zone(store: &Store) -> bool {
    store.ready().await.unwrap().findings.iter().any(|finding| finding.contains("time zone is not UTC"))
}
