//! The options of the connections.

use std::sync::Arc;

use dlock::{Error, ErrorKind, Key, LockKey};
use dlock_contract::{Backend, Queue, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, take};
use dlock_testkit::{Mode, Proxy, wait_until};
use futures::future::join_all;

use super::kit::{Database, TTL, try_open};
use super::support::attempt;
use crate::{named_kit, row_kit};

row_cases! {
    a_store_opens_no_more_connections_than_it_may
    one_connection_serves_many_holds_and_their_bodies
    a_pool_without_a_free_connection_is_an_error_of_its_own
    an_idle_connection_is_closed_after_its_time_and_not_by_default
    an_old_connection_is_replaced_after_its_time_and_not_by_default
    a_server_that_accepts_and_says_nothing_is_an_outage_after_the_time_for_a_connect
    an_option_with_a_value_that_cannot_be_is_refused
    a_store_that_is_closed_closes_its_connections
}

/// Beside the callers' connections: renewals have so many at most.
const RENEWALS: usize = 2;

async fn a_store_opens_no_more_connections_than_it_may(database: Database) {
    let store = Arc::new(database.store_with("max_connections=2").await);
    let claims: Vec<_> = (0..30).map(|number| database.claim(&number.to_string(), TTL)).collect();
    let most = async {
        let mut most = 0;
        for _ in 0..20 {
            most = most.max(database.sessions().await.len());
        }
        most
    };
    let work = async {
        for _ in 0..5 {
            let holds: Vec<_> = join_all(claims.iter().map(|claim| take(&*store, claim))).await;
            join_all(holds.iter().map(|hold| confirm(&*store, hold))).await;
            join_all(holds.iter().map(|hold| store.release(hold))).await;
        }
    };
    let (most, ()) = futures::join!(most, work);
    assert!((1..=2 + RENEWALS).contains(&most), "{most} connections");
}

async fn one_connection_serves_many_holds_and_their_bodies(database: Database) {
    let store = database.store_with("max_connections=1").await;
    let mut holds = Vec::new();
    // Each hold is taken while those before it are held, and each body asks the store and the database.
    for number in 0..20 {
        let hold = take(&store, &database.claim(&number.to_string(), TTL)).await;
        assert!(store.look(&hold.claim.key).await.unwrap().note().is_some());
        assert_eq!(database.held().await.len(), number + 1);
        holds.push(hold);
    }
    for hold in &holds {
        assert!(matches!(confirm(&store, hold).await, Standing::Renewed(_)));
        store.release(hold).await.unwrap();
    }
}

async fn a_pool_without_a_free_connection_is_an_error_of_its_own(database: Database) {
    let proxy = Proxy::start(database.addr()).unwrap();
    let store = try_open(&format!("{}?max_connections=1", database.url_at(proxy.port()))).await.unwrap();
    take(&store, &database.claim("a", TTL)).await;
    proxy.set(Mode::BLACKHOLE);
    let (one, two) = (database.claim("b", TTL), database.claim("c", TTL));
    let (one, two) = futures::join!(attempt(&store, &one), attempt(&store, &two));
    let errors = [one.unwrap_err(), two.unwrap_err()];
    let exhausted: Vec<_> = errors.iter().filter(|error| error.code() == Some("pool_exhausted")).collect();
    // The other one had the connection, and no answer.
    assert_eq!(exhausted.len(), 1, "{errors:?}");
    assert!(exhausted[0].is_retryable() && !exhausted[0].may_have_left(), "{errors:?}");
    assert!(exhausted[0].to_string().contains("max_connections"), "{errors:?}");
}

async fn an_idle_connection_is_closed_after_its_time_and_not_by_default(database: Database) {
    let kept = database.store().await;
    let hold = take(&kept, &database.claim("kept", TTL)).await;
    let before = database.sessions().await;
    let store = database.store_with("idle_timeout=50ms").await;
    take(&store, &database.claim("a", TTL)).await;
    wait_until("the idle connections are closed", async || database.sessions().await.len() == before.len())
        .await
        .unwrap();
    let mut left = database.sessions().await;
    left.sort();
    let mut before = before;
    before.sort();
    assert_eq!(left, before, "connections of a store without the option were closed");
    // It connects again when it is asked.
    take(&store, &database.claim("b", TTL)).await;
    assert!(matches!(confirm(&kept, &hold).await, Standing::Renewed(_)));
}

async fn an_old_connection_is_replaced_after_its_time_and_not_by_default(database: Database) {
    for (options, is_replaced) in [("max_connections=1&max_lifetime=50ms", true), ("max_connections=1", false)] {
        let store = database.store_with(options).await;
        store.ready().await.unwrap();
        let first = database.sessions().await;
        let mut was_replaced = false;
        for _ in 0..40 {
            store.ready().await.unwrap();
            // The connection is never idle for long, so only its age ends it.
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            let now = database.sessions().await;
            was_replaced |= now.iter().any(|session| !first.contains(session));
        }
        assert_eq!(was_replaced, is_replaced, "{options}");
        store.close().await;
        database.until_ended(&database.sessions().await).await;
    }
}

async fn a_server_that_accepts_and_says_nothing_is_an_outage_after_the_time_for_a_connect(database: Database) {
    let proxy = Proxy::start(database.addr()).unwrap();
    proxy.set(Mode::BLACKHOLE);
    let error = try_open(&format!("{}?connect_timeout=100ms", database.url_at(proxy.port()))).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
    assert!(error.to_string().contains("100ms") && !error.may_have_left(), "{error}");
}

async fn an_option_with_a_value_that_cannot_be_is_refused(database: Database) {
    for wrong in [
        "max_connections=0",
        "max_connections=1001",
        "max_connections=-1",
        "max_connections=many",
        "connect_timeout=0s",
        "connect_timeout=soon",
        "idle_timeout=0ms",
        "idle_timeout=-1s",
        "max_lifetime=",
        "way=paxos",
    ] {
        let error = try_open(&format!("{}?{wrong}", database.url())).await.unwrap_err();
        let option = wrong.split_once('=').unwrap().0;
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{wrong}: {error}");
        assert!(error.to_string().contains(option), "{wrong}: {error}");
    }
}

async fn a_store_that_is_closed_closes_its_connections(database: Database) {
    let store = database.store().await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    confirm(&store, &hold).await;
    assert!(database.sessions().await.len() >= 2);
    store.close().await;
    wait_until("the connections are closed", async || database.sessions().await.is_empty()).await.unwrap();
    drop(store);
    assert_eq!(database.held().await.len(), 1, "the row outlives its store");
}

/// All ways of an account at a server that has no connection left. `use_up` takes those that are free, until its answer is dropped.
/// Returns the errors of two callers, of whom one at least needs one more connection.
pub(crate) async fn without_a_free_connection<T>(
    database: &Database,
    url: &str,
    code: &str,
    use_up: impl AsyncFnOnce() -> T,
) -> Vec<Error> {
    let store = try_open(url).await.unwrap();
    let hold = take(&store, &database.claim("a", TTL)).await;
    confirm(&store, &hold).await;
    let (named, rows) = (named_kit::open_at(url).await, row_kit::open(url).await.unwrap());
    let other = |way: &str, text: &str, ttl| claim_on(&LockKey::new(way, Key::new().value(text)).unwrap(), ttl, |_| ());
    let named_hold = take(&named, &other("named", "a", TTL)).await;
    let row_hold = take(&rows, &other("row", "a", TTL)).await;
    let used_up = use_up().await;
    let is_told = |refused: Error| {
        assert_eq!((refused.kind(), refused.code()), (&ErrorKind::Outage, Some(code)), "{refused}");
        assert!(refused.is_retryable() && refused.to_string().contains("no connection left"), "{refused}");
        refused
    };
    assert!(!is_told(try_open(url).await.unwrap_err()).may_have_left());
    is_told(named_kit::try_open_at(url).await.unwrap_err());
    is_told(row_kit::open(url).await.unwrap_err());
    // A named lock of another ttl needs a session of its own, and so does each row.
    let refused = is_told(named.try_acquire(&other("named", "b", TTL / 8), Queue::Leave).await.unwrap_err());
    assert!(!refused.may_have_left(), "{refused}");
    let refused = is_told(rows.try_acquire(&other("row", "b", TTL), Queue::Leave).await.unwrap_err());
    assert!(!refused.may_have_left(), "{refused}");
    assert!(matches!(confirm(&named, &named_hold).await, Standing::Renewed(_)));
    assert!(matches!(confirm(&rows, &row_hold).await, Standing::Renewed(_)));
    // The connections that there are go on.
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    let (one, two) = (database.claim("b", TTL), database.claim("c", TTL));
    let (one, two) = futures::join!(attempt(&store, &one), attempt(&store, &two));
    drop(used_up);
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(named.release(&named_hold).await.unwrap(), Released::Released);
    assert_eq!(rows.release(&row_hold).await.unwrap(), Released::Released);
    let told = [one, two].map(|asked| asked.map(|hold| assert!(hold.is_some(), "nobody has the lock")));
    told.into_iter().filter_map(Result::err).collect()
}
