//! Members that are down, silent or strict, and secrets that errors must not show.

use std::time::Duration;

use dlock::backends::etcd::Etcd;
use dlock::backends::etcd::client::{Client, PermissionType};
use dlock::{Clock, ErrorKind};
use dlock_contract::{Backend, Durability, Fencing, Profile, Standing};
use dlock_testkit::holds::token;
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::{Proxy, a_closed_store_opens_nothing, lateness, text_of, wait_until};

use crate::names::{EPOCHS, LOCKS};
use crate::server::{ask, claim, lock, own, shared, url};

async fn open(url: &str) -> dlock::Result<Etcd> {
    Etcd::open(url, &Clock::system()).await
}

#[tokio::test]
async fn a_store_that_was_closed_opens_nothing() {
    let (proxy, url) = Proxy::in_front_of(&shared()).unwrap();
    a_closed_store_opens_nothing(&open(&url).await.unwrap(), &[proxy], &claim(&lock("closed"))).await;
}

#[tokio::test]
async fn tokens_rise_over_a_restart_and_an_outage_is_retryable() {
    let server = own();
    let process = open(&url(&server)).await.unwrap();
    let key = lock("restart");
    let long = |key: &_| crate::server::claim_for(key, Duration::from_secs(60), true);
    let hold = ask(&process, &long(&key)).await.unwrap();
    server.kill9().unwrap();
    let error = process.try_acquire(&long(&key), dlock_contract::Queue::Leave).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Outage);
    assert!(error.is_retryable());
    let error = process.renew(&[&hold]).await.pop().unwrap().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Outage);
    server.restart().unwrap();
    assert!(ask(&process, &long(&key)).await.is_none(), "a restart forgot the holder");
    assert!(matches!(process.renew(&[&hold]).await.pop().unwrap().unwrap(), Standing::Renewed(_)));
    process.release(&hold).await.unwrap();
    let next = ask(&process, &long(&key)).await.unwrap();
    assert!(token(&next) > token(&hold));
}

#[tokio::test]
async fn the_server_sets_the_shortest_ttl() {
    let ttl = async |server: &Instance| {
        let Profile { ttl, .. } = open(&url(server)).await.unwrap().profile().clone();
        (ttl.min, ttl.step)
    };
    let second = Duration::from_secs(1);
    // One and a half election timeouts, in whole seconds.
    let extra = ["--heartbeat-interval", "100", "--election-timeout", "1000"].map(str::to_owned).into();
    let slow = Instance::start(servers::Etcd { extra, ..servers::Etcd::default() }).unwrap();
    assert_eq!(ttl(&slow).await, (second * 2, second));
    assert_eq!(ttl(&own()).await, (second, second));
    let profile = open(&shared()).await.unwrap().profile().clone();
    assert_eq!((profile.fencing, profile.durability), (Fencing::Monotonic, Durability::Consensus));
    assert!(profile.fair && !profile.expires_alone && profile.runs_on == dlock_contract::RunsOn::Caller);
}

#[tokio::test]
async fn one_reachable_host_of_the_url_is_enough() {
    let dead = "127.0.0.1:1";
    let live = shared().replace("etcd://", "");
    for url in [format!("etcd://{dead},{live}"), format!("etcd://{live},{dead}")] {
        for _ in 0..4 {
            let process = open(&url).await.unwrap();
            assert!(ask(&process, &claim(&lock("one of"))).await.is_some());
        }
    }
    let error = open(&format!("etcd://{dead}")).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Outage);
    assert!(error.is_retryable() && text_of(&error).contains("refused"), "{error}");
}

#[tokio::test]
async fn a_silent_member_ends_an_open_in_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    lateness::watch();
    let before = std::time::Instant::now();
    let error = open(&format!("etcd://me:canary@{}", silent.local_addr().unwrap())).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Outage);
    lateness::assert_within(Duration::from_secs(7), before, "the end of the open");
    assert!(!text_of(&error).contains("canary"));
}

#[tokio::test]
async fn accounts_are_checked_and_passwords_not_shown() {
    let server = own();
    let mut raw = Client::connect([server.addr().to_string()], None).await.unwrap();
    raw.user_add("root", "r", None).await.unwrap();
    raw.user_grant_role("root", "root").await.unwrap();
    raw.user_add("me", "canary@:/%", None).await.unwrap();
    raw.user_add("poor", "canary", None).await.unwrap();
    raw.role_add("locks").await.unwrap();
    let permission = dlock::backends::etcd::client::Permission::new(PermissionType::Readwrite, "dl1").with_prefix();
    raw.role_grant_permission("locks", permission).await.unwrap();
    raw.user_grant_role("me", "locks").await.unwrap();

    let early = open(&format!("etcd://me:canary@{}", server.addr())).await.unwrap_err();
    assert!(matches!(early.kind(), ErrorKind::ConfigInvalid { .. }), "{early}");
    raw.auth_enable().await.unwrap();

    for account in ["etcd://me:canary", "etcd://canary:x", "etcd://me:canary%40%3A%2F"] {
        let error = open(&format!("{account}@{}", server.addr())).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{error}");
        assert!(!text_of(&error).contains("canary"), "{error:?}");
    }
    assert_eq!(open(&url(&server)).await.unwrap_err().kind(), &ErrorKind::PermissionDenied);

    let process = open(&format!("etcd://me:canary%40%3A%2F%25@{}", server.addr())).await.unwrap();
    assert_eq!(format!("{process:?}"), format!("Etcd {{ hosts: [\"{}\"], .. }}", server.addr()));
    let key = lock("account");
    let (mine, waiter) = (claim(&key), claim(&key));
    let hold = ask(&process, &mine).await.unwrap();
    let signal = crate::server::stand(&process, &waiter).await.unwrap_err().signal.unwrap();
    assert!(matches!(process.renew(&[&hold]).await.pop().unwrap().unwrap(), Standing::Renewed(_)));
    process.release(&hold).await.unwrap();
    signal.await.unwrap();
    assert!(crate::server::stand(&process, &waiter).await.is_ok());
    process.abandon(&waiter).await.unwrap();

    let error = open(&format!("etcd://poor:canary@{}", server.addr())).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::PermissionDenied);
    assert!(!text_of(&error).contains("canary"));
}

#[tokio::test]
async fn an_account_that_lacks_a_right_is_refused_when_it_connects_and_told_which() {
    use PermissionType::{Read, Readwrite, Write};
    let server = own();
    let mut raw = Client::connect([server.addr().to_string()], None).await.unwrap();
    raw.user_add("root", "r", None).await.unwrap();
    raw.user_grant_role("root", "root").await.unwrap();
    // As README.md lists them.
    let listed = [(LOCKS, Readwrite), (EPOCHS, Readwrite)];
    let page = include_str!("../../README.md");
    let accounts = [
        ("whole", listed.to_vec(), None),
        ("no-epochs", vec![listed[0]], Some(("read", EPOCHS))),
        ("no-locks", vec![listed[1]], Some(("read", LOCKS))),
        ("reads", vec![(LOCKS, Read), listed[1]], Some(("write", LOCKS))),
        ("writes", vec![listed[0], (EPOCHS, Write)], Some(("read", EPOCHS))),
        ("reads-epochs", vec![listed[0], (EPOCHS, Read)], Some(("write", EPOCHS))),
    ];
    for (name, rights, _) in &accounts {
        raw.user_add(*name, "pw", None).await.unwrap();
        raw.role_add(*name).await.unwrap();
        for (prefix, kind) in rights {
            let permission = dlock::backends::etcd::client::Permission::new(*kind, *prefix).with_prefix();
            raw.role_grant_permission(*name, permission).await.unwrap();
        }
        raw.user_grant_role(*name, *name).await.unwrap();
    }
    raw.auth_enable().await.unwrap();
    for (name, rights, lacks) in accounts {
        let opened = open(&format!("etcd://{name}:pw@{}", server.addr())).await;
        let Some((what, prefix)) = lacks else {
            for (prefix, _) in rights {
                let command = format!("role grant-permission locks --prefix=true readwrite {prefix}");
                assert!(page.contains(&command), "backends/etcd/README.md does not say {command}");
            }
            let (process, key) = (opened.unwrap(), lock("rights"));
            let hold = ask(&process, &claim(&key)).await.unwrap();
            process.release(&hold).await.unwrap();
            continue;
        };
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{name}: {error}");
        let text = error.to_string();
        assert!(text.contains(&format!("`{prefix}`")) && text.contains(&format!("may not {what}")), "{name}: {text}");
    }
    let options = dlock::backends::etcd::client::GetOptions::new().with_prefix();
    let root = dlock::backends::etcd::client::ConnectOptions::new().with_user("root", "r");
    let mut root = Client::connect([server.addr().to_string()], Some(root)).await.unwrap();
    let left = root.get("dl1", Some(options)).await.unwrap();
    let left: Vec<_> = left.kvs().iter().map(|entry| entry.key_str().unwrap()).collect();
    assert_eq!(left, [format!("{EPOCHS}form/own")], "the look at the rights left something");
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_told_by_the_probe() {
    let server = own();
    let mut raw = Client::connect([server.addr().to_string()], None).await.unwrap();
    raw.user_add("root", "r", None).await.unwrap();
    raw.user_grant_role("root", "root").await.unwrap();
    raw.user_add("app", "pw", None).await.unwrap();
    raw.role_add("locks").await.unwrap();
    let right = |kind, prefix| dlock::backends::etcd::client::Permission::new(kind, prefix).with_prefix();
    for prefix in [LOCKS, EPOCHS] {
        raw.role_grant_permission("locks", right(PermissionType::Readwrite, prefix)).await.unwrap();
    }
    raw.user_grant_role("app", "locks").await.unwrap();
    raw.auth_enable().await.unwrap();
    let root = dlock::backends::etcd::client::ConnectOptions::new().with_user("root", "r");
    let mut root = Client::connect([server.addr().to_string()], Some(root)).await.unwrap();
    let process = open(&format!("etcd://app:pw@{}", server.addr())).await.unwrap();
    process.ready().await.unwrap();
    let before = root.get(LOCKS, None).await.unwrap().header().unwrap().revision();
    process.ready().await.unwrap();
    let after = root.get(LOCKS, None).await.unwrap().header().unwrap().revision();
    assert_eq!(before, after, "a probe makes the history longer");
    for prefix in [LOCKS, EPOCHS] {
        root.role_grant_permission("locks", right(PermissionType::Read, prefix)).await.unwrap();
        // The server applies it at once, and its answer to a token of before may be an error of another kind.
        let mut error = None;
        let is_refused = async || {
            error = process.ready().await.err();
            error.as_ref().is_some_and(|error| *error.kind() == ErrorKind::PermissionDenied)
        };
        wait_until("the probe tells of the right", is_refused).await.unwrap();
        let text = error.unwrap().to_string();
        assert!(text.contains(&format!("may not write keys with the prefix `{prefix}`")), "{text}");
        root.role_grant_permission("locks", right(PermissionType::Readwrite, prefix)).await.unwrap();
        wait_until("the probe is content again", async || process.ready().await.is_ok()).await.unwrap();
    }
}
