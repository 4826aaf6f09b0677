//! PgBouncer, which gives each transaction any session of the server.

use std::time::Duration;

use dlock_contract::{Attempt, Backend, Inspect, Listing, Periods, Queue, Released, RunEnd, Standing, WakeStyle};
use dlock_store::Clock;
use dlock_testkit::holds::{claim, claim_on, confirm, key, stand, take, token, wait};
use dlock_testkit::servers::{Instance, PgBouncer, Postgres};
use dlock_testkit::{Proxy, wait_until};
use futures::future::join_all;
use sqlx::{Connection, Executor};

use crate::cases::support::is_refused;
use crate::kit::{Store, TTL, start, try_open};

const HOUR: Duration = Duration::from_secs(3600);

/// A server, a pooler with few sessions, and a store through the pooler.
async fn pooled(extra: &[&str]) -> (Instance, Instance, Store) {
    let server = start(Postgres::default()).await;
    let mut recipe = PgBouncer::before(&server);
    recipe.extra = extra.iter().map(|&line| line.to_owned()).collect();
    let bouncer = start(recipe).await;
    let store = try_open(&bouncer.url()).await.unwrap();
    (server, bouncer, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_work_through_a_pooler_and_exclude_callers_without_one() {
    let (server, _bouncer, pooled) = pooled(&["default_pool_size = 3"]).await;
    let direct = try_open(&server.url()).await.unwrap();
    let mut last = 0;
    for _ in 0..3 {
        for (one, other) in [(&pooled, &direct), (&direct, &pooled)] {
            let hold = take(one, &claim("a", TTL)).await;
            assert!(token(&hold) > last);
            last = token(&hold);
            is_refused(other, &claim("a", TTL)).await;
            assert!(matches!(confirm(one, &hold).await, Standing::Renewed(_)));
            assert!(other.look(&hold.claim.key).await.unwrap().note().is_some());
            assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
        }
    }
    let once = || {
        let once_per = dlock::OncePer::new(HOUR);
        claim_on(&key("run"), TTL, |claim| claim.once_per = Some(Box::new(once_per)))
    };
    let run = take(&pooled, &once()).await;
    pooled.end_run(&run, RunEnd::Succeeded { took: TTL }).await.unwrap();
    for store in [&pooled, &direct] {
        let again = store.try_acquire(&once(), Queue::Leave).await.unwrap();
        assert!(matches!(again, Attempt::AlreadyRun), "{again:?}");
        assert_eq!(store.last_success(&run.claim.key).await.unwrap().unwrap().took, TTL);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_few_sessions_of_a_pooler() {
    let (_server, _bouncer, store) = pooled(&["default_pool_size = 2"]).await;
    for _ in 0..5 {
        let claims: Vec<_> = (0..30).map(|number| claim(&number.to_string(), TTL)).collect();
        let holds = join_all(claims.iter().map(|claim| take(&store, claim))).await;
        let answers = store.renew(&holds.iter().collect::<Vec<_>>()).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Standing::Renewed(_)))), "{answers:?}");
        assert_eq!(store.list(&Listing::of("test")).await.unwrap().locks.len(), 30);
        join_all(holds.iter().map(|hold| store.release(hold))).await.into_iter().for_each(|ended| {
            assert_eq!(ended.unwrap(), Released::Released);
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_is_told_and_a_server_without_one_is_not() {
    let (server, _bouncer, pooled) = pooled(&[]).await;
    let health = pooled.ready().await.unwrap();
    assert!(health.findings.iter().any(|finding| finding.contains("pooler")), "{health}");
    let health = try_open(&server.url()).await.unwrap().ready().await.unwrap();
    assert_eq!(health.findings, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_gives_each_client_its_own_session_is_as_good_as_none() {
    let (_server, _bouncer, store) = pooled(&["pool_mode = session"]).await;
    let health = store.ready().await.unwrap();
    assert_eq!(health.findings, [""; 0]);
    assert!(health.role.unwrap().contains("pooler"));
    let hold = take(&store, &claim("a", TTL)).await;
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

/// A session of a pooler is not the waiter's own, so there is no wait queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_behind_a_pooler_poll_and_the_store_says_so() {
    let (server, _bouncer, pooled) = pooled(&["default_pool_size = 3"]).await;
    let direct = try_open(&server.url()).await.unwrap();
    assert!(matches!(pooled.profile().wake, WakeStyle::Poll { .. }) && pooled.exchange().is_none());
    assert!(matches!(direct.profile().wake, WakeStyle::Grant) && direct.exchange().is_some());
    let findings = pooled.ready().await.unwrap().findings;
    assert!(findings.iter().any(|finding| finding.contains("waiters poll")), "{findings:?}");
    let hold = take(&direct, &claim("a", TTL)).await;
    assert!(stand(&pooled, &claim("a", TTL)).await.signal.is_none());
    let waiter = claim("a", TTL);
    let waits = wait(&pooled, &waiter, TTL);
    let (next, released) = futures::join!(waits, direct.release(&hold));
    assert_eq!(released.unwrap(), Released::Released);
    assert!(token(&next) > token(&hold));
}

/// The sessions of a pooler belong to other programs too. A limit for statements that stays behind would end theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_ours_stays_set_in_a_session_of_a_pooler() {
    let (_server, bouncer, store) = pooled(&["default_pool_size = 1"]).await;
    let hold = take(&store, &claim("a", TTL)).await;
    confirm(&store, &hold).await;
    store.ready().await.unwrap();
    for (setting, ordinary) in [
        ("statement_timeout", "0"),
        ("lock_timeout", "0"),
        ("default_transaction_isolation", "read committed"),
        ("synchronous_commit", "on"),
    ] {
        assert_eq!(bouncer.ask(&format!("SHOW {setting}")).unwrap(), ordinary, "{setting}");
    }
}

/// The network keeps the last message of an acquisition until its call has long ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_behind_a_pooler_whose_commit_is_late_takes_nothing() {
    let (server, bouncer, direct) = pooled(&["default_pool_size = 4"]).await;
    let proxy = Proxy::start(bouncer.addr()).unwrap();
    let url = bouncer.url().replace(&bouncer.port().to_string(), &proxy.port().to_string());
    let store = try_open(&format!("{url}?max_connections=1")).await.unwrap();
    store.release(&take(&store, &claim("first", TTL)).await).await.unwrap();
    let mut somebody = sqlx::PgConnection::connect(&server.url()).await.unwrap();
    let watcher = sqlx::PgPool::connect(&server.url()).await.unwrap();
    let row = claim("a", TTL).key.as_str().to_owned();
    let blocks = [
        format!("INSERT INTO dlock_locks (k, token, expires_us, note, hold) VALUES ('{row}', 1, 1, '', '')"),
        format!("UPDATE dlock_locks SET note = '' WHERE k = '{row}'"),
    ];
    for (block, delivers) in blocks.iter().zip([true, false]) {
        // The attempt goes on, and nobody polls it.
        let (late, _attempt) = loop {
            somebody.execute("BEGIN").await.unwrap();
            assert_eq!(somebody.execute(sqlx::AssertSqlSafe(block.as_str())).await.unwrap().rows_affected(), 1);
            let late = claim("a", TTL);
            let (store, asked) = (&store, late.clone());
            let mut attempt = Box::pin(async move { store.try_acquire(&asked, Queue::Leave).await });
            let sessions = async |state: &'static str| {
                let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE {state}");
                sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(sql)).fetch_one(&watcher).await.unwrap()
            };
            let is_waiting = async || sessions("wait_event_type = 'Lock'").await == 1;
            let is_kept = async || {
                proxy.kept().iter().any(|bytes| *bytes > 0) && sessions("state = 'idle in transaction'").await == 1
            };
            let commits = async {
                wait_until("it waits for the row", is_waiting).await.unwrap();
                proxy.keep();
                somebody.execute("ROLLBACK").await.unwrap();
                wait_until("its commit is sent", is_kept).await.unwrap();
            };
            tokio::select! {
                // The server's limit for its wait is a second (`lock_timeout`). A slow machine may let that pass.
                answer = &mut attempt => assert!(answer.is_err(), "{answer:?}"),
                () = commits => break (late, attempt),
            }
            proxy.deliver_all();
            somebody.execute("ROLLBACK").await.unwrap();
        };
        if delivers {
            wait_until("it is undone", async || store.abandon(&late).await.is_ok()).await.unwrap();
            proxy.deliver_all();
            // It arrives within a moment.
            tokio::time::sleep(Duration::from_millis(300)).await;
            is_refused_by_nobody(&direct).await;
        } else {
            let next = wait_until("its transaction ends", async || {
                let answer = direct.try_acquire(&claim("a", TTL), Queue::Leave).await;
                matches!(answer, Ok(Attempt::Acquired(_)))
            });
            next.await.unwrap();
        }
    }
}

async fn is_refused_by_nobody(store: &Store) {
    let next = take(store, &claim("a", TTL)).await;
    assert_eq!(store.release(&next).await.unwrap(), Released::Released);
}

/// Other clients of the pooler take its sessions between two requests of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_under_load_is_never_taken_for_a_server() {
    let (_server, bouncer, _store) = pooled(&["default_pool_size = 4"]).await;
    let load = (0..6).map(|_| {
        let url = bouncer.url();
        AbortOnDrop(tokio::spawn(async move {
            let mut client = sqlx::PgConnection::connect(&url).await.unwrap();
            while client.execute("SELECT 1").await.is_ok() {}
        }))
    });
    let load: Vec<_> = load.collect();
    for _ in 0..25 {
        let findings = try_open(&bouncer.url()).await.unwrap().ready().await.unwrap().findings;
        assert!(findings.iter().any(|finding| finding.contains("pooler")), "{findings:?}");
        for way in ["named", "row"] {
            let error = open_way(&bouncer.url(), way).await.unwrap_err();
            assert!(error.to_string().contains("pooler"), "{way}: {error}");
        }
    }
    drop(load);
    for setting in ["statement_timeout", "lock_timeout", "default_transaction_read_only"] {
        let value = bouncer.ask(&format!("SHOW {setting}")).unwrap();
        assert!(value == "0" || value == "off", "{setting} = {value}");
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn open_way(url: &str, way: &str) -> dlock::Result<()> {
    match way {
        "named" => dlock_postgres::named::open(&format!("{url}?way=named"), &Clock::system()).await.map(drop),
        _ => crate::row_kit::open(url).await.map(drop),
    }
}
