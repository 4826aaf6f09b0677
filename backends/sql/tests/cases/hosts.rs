//! Several hosts in one URL: the first one that takes the connection is used.

use dlock::ErrorKind;
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::take;
use dlock_testkit::servers::free_port;
use dlock_testkit::{Mode, Proxy};

use super::kit::{Database, TTL, try_open};
use super::support::is_refused;

row_cases! {
    a_host_that_is_down_is_passed_over
    a_host_that_accepts_and_says_nothing_is_passed_over
    a_host_that_does_not_know_the_account_ends_the_search
    hosts_that_are_all_down_are_an_outage
}

/// The URL of the server with another host before it.
fn behind(database: &Database, first: u16) -> String {
    format!("{}?tls=off", database.url().replacen('@', &format!("@127.0.0.1:{first},"), 1))
}

async fn a_host_that_is_down_is_passed_over(database: Database) {
    let one = try_open(&behind(&database, free_port())).await.unwrap();
    let hold = take(&one, &database.claim("a", TTL)).await;
    is_refused(&database.store().await, &database.claim("a", TTL)).await;
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    assert!(format!("{one:?}").contains(&format!("{}/{}", database.addr(), database.name)), "{one:?}");
}

async fn a_host_that_accepts_and_says_nothing_is_passed_over(database: Database) {
    let proxy = Proxy::start(database.addr()).unwrap();
    proxy.set(Mode::BLACKHOLE);
    let one = try_open(&format!("{}&connect_timeout=2s", behind(&database, proxy.port()))).await.unwrap();
    take(&one, &database.claim("a", TTL)).await;
    is_refused(&database.store().await, &database.claim("a", TTL)).await;
}

async fn a_host_that_does_not_know_the_account_ends_the_search(database: Database) {
    let url = behind(&database, database.addr().port());
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, hosts) = rest.split_once('@').unwrap();
    let error = try_open(&format!("{scheme}://canary@{hosts}")).await.unwrap_err();
    // MySQL asks for a password in its own form before it says that it does not know the account.
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported { .. }), "{error}");
    let text = dlock_testkit::text_of(&error);
    assert!(!text.contains("canary"), "{text}");
}

async fn hosts_that_are_all_down_are_an_outage(database: Database) {
    let port = database.addr().port();
    let url = behind(&database, free_port()).replace(&format!(":{port}/"), &format!(":{}/", free_port()));
    let error = try_open(&url).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
}
