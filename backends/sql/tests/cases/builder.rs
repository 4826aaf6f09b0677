//! Stores that are opened by more than a URL: a provider of credentials, and the settings of a pool.

use std::future::{Ready, ready};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock::{Clock, ErrorKind};
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::take;
use dlock_testkit::{Proxy, text_of, wait_until};

use super::kit::{Builder, Database, Login, TTL};
use crate::named::half_broken::HalfBroken;

row_cases! {
    a_provider_is_asked_at_each_connect_and_a_rotated_password_is_used
    a_provider_may_give_the_user_too
    a_provider_that_fails_or_hangs_is_an_outage_and_shows_nothing
    a_password_that_a_provider_gives_is_never_shown
    a_job_of_a_connection_that_cannot_be_made_again_goes_over_an_idle_one
    a_connection_that_the_server_has_ended_costs_no_attempt_after_one_without_an_answer
    the_settings_of_a_pool_open_a_store_of_each_way
    options_that_the_settings_of_a_pool_have_already_are_refused
}

/// An account that may do all, with this password.
async fn account(database: &Database, password: &str) -> String {
    let name = format!("canary_{:08x}", fastrand::u32(..));
    database.make_account(&name, password).await;
    name
}

/// A URL with this user and no password.
async fn url_of(database: &Database, user: &str) -> String {
    format!("{}?{}", database.url_of(user), database.for_passwords().await)
}

/// A provider of this account, which fails while the flag is set.
fn unless_failing(
    fails: &Arc<AtomicBool>,
    user: String,
) -> impl Fn() -> Ready<Result<Login, ()>> + Send + Sync + 'static {
    let fails = fails.clone();
    move || ready(if fails.load(Ordering::Relaxed) { Err(()) } else { Ok(Login::user(user.clone(), "right")) })
}

async fn cycle(store: &dyn Backend, database: &Database) {
    let claim = database.claim("a", TTL);
    let Attempt::Acquired(hold) = store.try_acquire(&claim, Queue::Leave).await.unwrap() else { panic!("not free") };
    assert!(matches!(store.renew(&[&hold]).await.remove(0).unwrap(), Standing::Renewed(_)));
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn a_provider_is_asked_at_each_connect_and_a_rotated_password_is_used(database: Database) {
    let user = account(&database, "first").await;
    let (password, asked) = (Arc::new(Mutex::new("first")), Arc::new(AtomicUsize::new(0)));
    let provide = {
        let (password, asked) = (password.clone(), asked.clone());
        move || {
            asked.fetch_add(1, Ordering::Relaxed);
            let password = *password.lock().unwrap();
            async move { Ok::<_, std::io::Error>(Login::password(password)) }
        }
    };
    let url = url_of(&database, &user).await;
    let store = Builder::url(&url).unwrap().credentials(provide).open(&Clock::system()).await.unwrap();
    cycle(&*store, &database).await;
    let before = asked.load(Ordering::Relaxed);
    assert!(before >= 1);
    *password.lock().unwrap() = "second";
    database.change_password(&user, "second").await;
    database.end_sessions().await;
    cycle(&*store, &database).await;
    assert!(asked.load(Ordering::Relaxed) > before, "the provider was not asked again");
}

async fn a_provider_may_give_the_user_too(database: Database) {
    let user = account(&database, "right").await;
    let url = url_of(&database, "nobody").await;
    let provide = move || {
        let login = Login::user(user.clone(), "right");
        async move { Ok::<_, std::io::Error>(login) }
    };
    let store = Builder::url(&url).unwrap().credentials(provide).open(&Clock::system()).await.unwrap();
    cycle(&*store, &database).await;
}

async fn a_provider_that_fails_or_hangs_is_an_outage_and_shows_nothing(database: Database) {
    let fails = || async { Err::<Login, _>(std::io::Error::other("canary: no token")) };
    let opened = Builder::url(&database.url()).unwrap().credentials(fails).open(&Clock::system()).await;
    let error = opened.map(drop).unwrap_err();
    assert_eq!((error.kind(), error.code()), (&ErrorKind::Outage, Some("credentials")), "{error}");
    assert!(error.is_retryable() && !error.may_have_left() && !text_of(&error).contains("canary"), "{error:?}");
    let url = format!("{}?connect_timeout=100ms", database.url());
    let hangs = || std::future::pending::<std::io::Result<Login>>();
    let opened = Builder::url(&url).unwrap().credentials(hangs).open(&Clock::system()).await;
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.to_string().contains("100ms"), "{error}");
}

async fn a_password_that_a_provider_gives_is_never_shown(database: Database) {
    let user = account(&database, "right").await;
    let url = url_of(&database, &user).await;
    let provide = || async { Ok::<_, std::io::Error>(Login::password("canary-wrong")) };
    let builder = Builder::url(&url).unwrap().credentials(provide);
    assert!(!format!("{builder:?} {:?}", Login::user("canary", "canary")).contains("canary"));
    let error = builder.open(&Clock::system()).await.map(drop).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(!text_of(&error).contains("canary"), "{error:?}");
}

async fn the_settings_of_a_pool_open_a_store_of_each_way(database: Database) {
    let settings = database.settings();
    for options in ["", "way=lease&max_connections=1", "way=named", "way=row"] {
        let store = Builder::settings(&settings, options).unwrap().open(&Clock::system()).await.unwrap();
        cycle(&*store, &database).await;
        assert!(!format!("{:?}", Builder::settings(&settings, options).unwrap()).contains("127.0.0.1"));
        store.close().await;
        database.forget_way().await;
    }
    // It waits for no connection of the pool, and takes none.
    let held = Builder::settings(&settings, "max_connections=1").unwrap().open(&Clock::system()).await.unwrap();
    let claim = database.claim("b", Duration::from_secs(30));
    assert!(matches!(held.try_acquire(&claim, Queue::Leave).await.unwrap(), Attempt::Acquired(_)));
}

async fn options_that_the_settings_of_a_pool_have_already_are_refused(database: Database) {
    for options in ["tls=off", "socket=/run", "ca=/x", "unknown=1", "max_connections=0", "way=paxos"] {
        let opened = async { Builder::settings(&database.settings(), options)?.open(&Clock::system()).await };
        let error = opened.await.map(drop).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{options}: {error}");
    }
}

async fn a_job_of_a_connection_that_cannot_be_made_again_goes_over_an_idle_one(database: Database) {
    let user = account(&database, "right").await;
    let fails = Arc::new(AtomicBool::new(false));
    let provide = unless_failing(&fails, user);
    let relay = HalfBroken::start(database.addr()).await;
    let url = format!("{}?{}", database.url_at(relay.port), database.for_passwords().await);
    let store = Builder::url(&url).unwrap().credentials(provide).open(&Clock::system()).await.unwrap();
    let take = async |number: usize| take(&*store, &database.claim(&number.to_string(), TTL)).await;
    let first = relay.lines();
    take(0).await;
    // One of the callers' connections is busy, so there is a second one.
    let mut number = 0;
    let waiting = loop {
        (first..relay.lines()).for_each(|line| relay.keep(line));
        number += 1;
        let mut asked = Box::pin(take(number));
        let is_sent = async || (first..relay.lines()).any(|line| relay.keeps_some(line));
        tokio::select! {
            // Over a new connection.
            _ = &mut asked => {}
            is_sent = wait_until("it is sent", is_sent) => {
                is_sent.unwrap();
                break asked;
            }
        }
    };
    let busy = (first..relay.lines()).find(|line| relay.keeps_some(*line)).unwrap();
    for line in (first..relay.lines()).filter(|line| *line != busy) {
        relay.keep(line);
        relay.deliver(line).await;
    }
    take(number + 1).await;
    relay.deliver(busy).await;
    waiting.await;
    // It was used last, so it is asked first, and cannot be made again.
    fails.store(true, Ordering::Relaxed);
    relay.break_off(busy);
    // Longer than a connection is used without a question. Nothing happens meanwhile that could be waited for.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    take(number + 2).await;
}

async fn a_connection_that_the_server_has_ended_costs_no_attempt_after_one_without_an_answer(database: Database) {
    let user = account(&database, "right").await;
    let fails = Arc::new(AtomicBool::new(false));
    let provide = unless_failing(&fails, user);
    let proxy = Proxy::start(database.addr()).unwrap();
    let url = format!("{}?{}", database.url_at(proxy.port()), database.for_passwords().await);
    let store = Builder::url(&url).unwrap().credentials(provide).open(&Clock::system()).await.unwrap();
    take(&*store, &database.claim("a", TTL)).await;
    proxy.keep();
    let late = database.claim("b", TTL);
    let ends = async {
        wait_until("it is sent", async || proxy.kept().iter().any(|bytes| *bytes > 0)).await.unwrap();
        // Over a connection that is not kept.
        wait_until("it goes over another one", async || {
            let claim = database.claim("c", TTL);
            store.try_acquire(&claim, Queue::Leave).await.is_ok()
        })
        .await
        .unwrap();
        fails.store(true, Ordering::Relaxed);
        database.end_sessions().await;
    };
    let (answer, ()) = tokio::join!(store.try_acquire(&late, Queue::Leave), ends);
    answer.expect_err("it had no answer");
    fails.store(false, Ordering::Relaxed);
    // At once, so that its connection is not asked first whether it still lives.
    take(&*store, &database.claim("d", TTL)).await;
}
