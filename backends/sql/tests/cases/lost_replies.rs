//! Requests whose replies are lost: the server has done them, and the caller cannot know.

use std::sync::Arc;

use dlock::ErrorKind;
use dlock_contract::{Backend, Claim, Keeps, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, take, token};
use dlock_testkit::{Mode, Proxy, wait_until};

use super::kit::{Database, Store, TTL, try_open};
use super::support::attempt;

row_cases! {
    an_acquisition_whose_reply_was_lost_is_confirmed_with_the_same_token
    a_release_whose_reply_was_lost_is_never_answered_as_another_owners
    a_renewal_whose_reply_was_lost_loses_nothing
    an_acquisition_that_is_cut_off_after_the_server_did_it_is_confirmed_on_a_new_connection
    a_release_that_is_cut_off_after_the_server_did_it_is_unknown
    an_acquisition_that_arrives_after_its_abandon_takes_nothing
    an_acquisition_in_shedlock_s_table_that_arrives_after_its_abandon_takes_nothing
    an_acquisition_that_arrives_after_the_release_of_the_next_one_takes_nothing
    an_acquisition_whose_caller_has_gone_takes_nothing_after_the_release_of_the_next_one
}

/// A store behind a proxy, with one connection, which has answered already.
async fn behind_proxy(database: &Database) -> (Proxy, Store) {
    let proxy = Proxy::start(database.addr()).unwrap();
    let store = try_open(&format!("{}?max_connections=1", database.url_at(proxy.port()))).await.unwrap();
    let first = take(&store, &database.claim("first", TTL)).await;
    assert_eq!(store.release(&first).await.unwrap(), Released::Released);
    (proxy, store)
}

async fn an_acquisition_whose_reply_was_lost_is_confirmed_with_the_same_token(database: Database) {
    let (proxy, store) = behind_proxy(&database).await;
    // First an insert, then updates.
    for round in 0..3 {
        let claim = database.claim("a", TTL);
        proxy.set(Mode::DropReplies);
        let error = attempt(&store, &claim).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Outage) && error.may_have_left(), "round {round}: {error}");
        proxy.set(Mode::Pass);
        let held = database.lines("SELECT token FROM dlock_locks WHERE owner IS NOT NULL").await;
        let hold = take(&store, &claim).await;
        // The first request of an insert finds no row, and ends with its own lost reply.
        assert!(held.is_empty() && round == 0 || held == [token(&hold).to_string()], "round {round}: {held:?}");
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    }
}

async fn a_release_whose_reply_was_lost_is_never_answered_as_another_owners(database: Database) {
    let (proxy, store) = behind_proxy(&database).await;
    for keeps in [false, true] {
        let hold = take(&store, &database.claim("a", TTL)).await;
        proxy.set(Mode::DropReplies);
        let ended = if keeps { store.keep(&hold, TTL / 1000, None).await } else { store.release(&hold).await };
        let error = ended.expect_err("nothing is known of it");
        assert!(matches!(error.kind(), ErrorKind::Outage) && error.may_have_left(), "{error}");
        proxy.set(Mode::Pass);
        database.change(super::support::EXPIRE).await;
    }
}

async fn a_renewal_whose_reply_was_lost_loses_nothing(database: Database) {
    let (proxy, store) = behind_proxy(&database).await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    confirm(&store, &hold).await;
    for _ in 0..3 {
        proxy.set(Mode::DropReplies);
        let answer = store.renew(&[&hold]).await.remove(0);
        assert!(matches!(&answer, Err(error) if error.is_retryable()), "{answer:?}");
        proxy.set(Mode::Pass);
        assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    }
}

/// The server does what `asking` asks for, and its reply gets lost. The next connection is a good one.
async fn cut_off<T>(proxy: &Proxy, asking: impl Future<Output = T>, is_done: impl AsyncFnMut() -> bool) -> T {
    proxy.set(Mode::Blackhole { to_server: false, to_client: true });
    let cutting = async {
        wait_until("the server does it", is_done).await.unwrap();
        proxy.set(Mode::Pass);
        proxy.cut();
    };
    futures::join!(asking, cutting).0
}

async fn an_acquisition_that_is_cut_off_after_the_server_did_it_is_confirmed_on_a_new_connection(database: Database) {
    let (proxy, store) = behind_proxy(&database).await;
    // Of a row that is there already, since only its update is the first request.
    store.release(&take(&store, &database.claim("a", TTL)).await).await.unwrap();
    let claim = database.claim("a", TTL);
    let is_done = async || !database.held().await.is_empty();
    let hold = cut_off(&proxy, attempt(&store, &claim), is_done).await.unwrap().expect("refused by its own row");
    assert_eq!(
        database.lines("SELECT token FROM dlock_locks WHERE owner IS NOT NULL").await,
        [token(&hold).to_string()]
    );
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn a_release_that_is_cut_off_after_the_server_did_it_is_unknown(database: Database) {
    let (proxy, store) = behind_proxy(&database).await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    let is_done = async || database.held().await.is_empty();
    // It was this owner's, though the second request finds nothing to free.
    let error = cut_off(&proxy, store.release(&hold), is_done).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.may_have_left(), "{error}");
    assert_eq!(store.release(&hold).await.unwrap(), Released::NotOwner);
}

async fn an_acquisition_that_arrives_after_its_abandon_takes_nothing(database: Database) {
    arrives_late(&database, "").await;
}

async fn an_acquisition_in_shedlock_s_table_that_arrives_after_its_abandon_takes_nothing(database: Database) {
    arrives_late(&database, "&layout=shedlock&shedlock_create=yes").await;
}

/// The network keeps the request until its call has long ended.
async fn arrives_late(database: &Database, layout: &str) {
    let proxy = Proxy::start(database.addr()).unwrap();
    let url = format!("{}?max_connections=1{layout}", database.url_at(proxy.port()));
    let store = try_open(&url).await.unwrap();
    for once in [false, true] {
        let claim = || {
            let once = once.then(|| Box::new(dlock::OncePer::new(std::time::Duration::from_secs(3600))));
            claim_on(&database.claim("a", TTL).key, TTL, |claim| claim.once_per = once)
        };
        // The row is there, so that one request is enough.
        store.release(&take(&store, &database.claim("a", TTL)).await).await.unwrap();
        proxy.keep();
        let late = claim();
        attempt(&store, &late).await.unwrap_err();
        wait_until("it is undone", async || store.abandon(&late).await.is_ok()).await.unwrap();
        proxy.deliver_all();
        // It arrives within a moment.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let next = take(&store, &claim()).await;
        assert_eq!(store.release(&next).await.unwrap(), Released::Released);
    }
}

/// The engine asks again for the same owner, without an abandon in between.
async fn an_acquisition_that_arrives_after_the_release_of_the_next_one_takes_nothing(database: Database) {
    let (proxy, store) = behind_proxy(&database).await;
    // The row is there, so that one request is enough.
    store.release(&take(&store, &database.claim("a", TTL)).await).await.unwrap();
    proxy.keep();
    let claim = database.claim("a", TTL);
    attempt(&store, &claim).await.unwrap_err();
    takes_nothing_late(&proxy, &store, &claim).await;
}

/// With a ttl that is shorter than the limit of a statement, the engine asks again while the first statement is under way.
async fn an_acquisition_whose_caller_has_gone_takes_nothing_after_the_release_of_the_next_one(database: Database) {
    let proxy = Proxy::start(database.addr()).unwrap();
    // The second attempt does not wait for the connection of the first one.
    let store = try_open(&format!("{}?max_connections=2", database.url_at(proxy.port()))).await.unwrap();
    // The row is there, so that one request is enough.
    store.release(&take(&store, &database.claim("a", TTL)).await).await.unwrap();
    proxy.keep();
    let claim = database.claim("a", TTL);
    // It leaves within a moment.
    let asked = tokio::time::timeout(std::time::Duration::from_millis(500), attempt(&store, &claim)).await;
    assert!(asked.is_err() && proxy.kept().iter().any(|bytes| *bytes > 0), "{asked:?}");
    takes_nothing_late(&proxy, &store, &claim).await;
}

/// The owner's next attempt takes the lock and frees it. Then the first one is delivered, and takes nothing.
async fn takes_nothing_late(proxy: &Proxy, store: &Store, claim: &Arc<Claim>) {
    let mut hold = None;
    // Other connections are silent too.
    let is_taken = async || {
        hold = attempt(store, claim).await.ok().flatten();
        hold.is_some()
    };
    wait_until("the next attempt to take it", is_taken).await.unwrap();
    assert_eq!(store.release(&hold.unwrap()).await.unwrap(), Released::Released);
    proxy.deliver_all();
    // It arrives within a moment.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let next = take(store, &claim_on(&claim.key, TTL, |_| ())).await;
    assert_eq!(store.release(&next).await.unwrap(), Released::Released);
}
