//! Accounts and access lists, and a chroot that is made on demand.

use dlock::ErrorKind;
use dlock::backends::zookeeper::client::{Acl, Acls, AuthId, Client, CreateMode, Error as ClientError, Permission};
use dlock_contract::{Backend, Queue, Standing};
use dlock_testkit::holds::take;
use dlock_testkit::servers::{Instance, ZooKeeper};
use dlock_testkit::text_of;

use crate::kit::{claim, line, lock, open, opened, path, process, raw, shared};

fn with_account(account: &str, rest: &str) -> String {
    format!("zk://{account}@{}{rest}", shared().strip_prefix("zk://").unwrap())
}

#[tokio::test]
async fn a_chroot_is_made_on_demand() {
    let root = format!("/c{}/locks", fastrand::u64(..));
    let raw = raw(&shared()).await;
    assert_eq!(raw.check_stat(&root).await.unwrap(), None);
    let store = opened(&format!("{}{root}", shared())).await;
    let key = lock("chroot");
    let place = path(&store, &key);
    assert!(place.starts_with(&format!("{root}/dlock/")), "{place}");
    let hold = take(&store, &claim(&key)).await;
    assert_eq!(line(&raw, &place).await.len(), 1);
    store.ready().await.unwrap();
    store.release(&hold).await.unwrap();
}

#[tokio::test]
async fn with_an_account_the_nodes_are_the_accounts_alone() {
    let root = format!("/a{}", fastrand::u64(..));
    let store = opened(&with_account("me:canary", &root)).await;
    let key = lock("mine");
    let hold = take(&store, &claim(&key)).await;
    let stranger = raw(&shared()).await;
    assert_eq!(stranger.list_children(&path(&store, &key)).await, Err(ClientError::NoAuth));
    let other = open(&with_account("you:canary", &root)).await.unwrap_err();
    assert_eq!(other.kind(), &ErrorKind::PermissionDenied);
    assert!(!text_of(&other).contains("canary") && !format!("{store:?}").contains("canary"));
    assert!(text_of(&other).contains(&format!("{root}/dlock")), "{other}");
    let error = open(&format!("{}{root}", shared())).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::PermissionDenied);
    store.release(&hold).await.unwrap();

    let open_to_all = opened(&with_account("me:canary", &format!("{root}o?acl=open"))).await;
    let hold = take(&open_to_all, &claim(&key)).await;
    assert_eq!(line(&stranger, &path(&open_to_all, &key)).await.len(), 1);
    open_to_all.release(&hold).await.unwrap();
}

#[tokio::test]
async fn without_an_account_the_nodes_are_open() {
    let root = format!("/o{}", fastrand::u64(..));
    let store = opened(&format!("{}{root}", shared())).await;
    let key = lock("open");
    let hold = take(&store, &claim(&key)).await;
    assert_eq!(line(&raw(&shared()).await, &path(&store, &key)).await.len(), 1);
    store.release(&hold).await.unwrap();
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_told_by_the_probe() {
    let url = format!("{}/r{}", shared(), fastrand::u64(..));
    let (store, raw) = (opened(&url).await, raw(&shared()).await);
    store.ready().await.unwrap();
    let locks = format!("/{}/dlock", url.rsplit_once('/').unwrap().1);
    let reads = Acl::new(Permission::READ | Permission::ADMIN, AuthId::anyone());
    raw.set_acl(&locks, &[reads], None).await.unwrap();
    for error in [store.ready().await.unwrap_err(), open(&url).await.unwrap_err()] {
        assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{error}");
        assert!(error.message().contains(&locks), "{error}");
    }
    raw.set_acl(&locks, &[Acl::new(Permission::ALL, AuthId::anyone())], None).await.unwrap();
    store.ready().await.unwrap();
    assert_eq!(line(&raw, &format!("{locks}/@probe")).await, [""; 0], "the probe left something");
}

#[tokio::test]
async fn a_lock_under_another_accounts_path_is_refused() {
    let account = Client::connector().with_auth("digest", b"me:canary");
    let account = account.connect(shared().strip_prefix("zk://").unwrap()).await.unwrap();
    let name = format!("p{}", fastrand::u64(..));
    account.create(&format!("/{name}"), b"", &CreateMode::Persistent.with_acls(Acls::creator_all())).await.unwrap();
    let store = opened(&format!("{}?keys=literal", shared())).await;
    let key = dlock::LockKey::new("t", dlock::Key::new().value(&name)).unwrap();
    for queue in [Queue::Leave, dlock_testkit::holds::until()] {
        let error = store.try_acquire(&claim(&key), queue).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{error}");
    }
}

#[tokio::test]
async fn a_node_that_may_not_be_read_any_more_fails_no_renewal() {
    let (store, raw) = (process().await, raw(&shared()).await);
    let keys = ["closed", "beside"].map(lock);
    let holds = [take(&store, &claim(&keys[0])).await, take(&store, &claim(&keys[1])).await];
    assert_eq!(holds[0].group(), holds[1].group());
    let place = path(&store, &keys[0]);
    let node = format!("{place}/{}", line(&raw, &place).await[0]);
    raw.set_acl(&node, &[Acl::new(Permission::ADMIN, AuthId::anyone())], None).await.unwrap();
    for standing in store.renew(&[&holds[0], &holds[1]]).await {
        assert!(matches!(standing, Ok(Standing::Renewed(_))), "{standing:?}");
    }
    raw.delete(&node, None).await.unwrap();
    let standings = store.renew(&[&holds[0], &holds[1]]).await;
    assert!(matches!(standings[..], [Ok(Standing::Lost), Ok(Standing::Renewed(_))]), "{standings:?}");
}

#[tokio::test]
async fn an_account_that_the_servers_check_is_told_by_sasl() {
    let server = Instance::start(ZooKeeper { account: Some(("me", "canary")), ..ZooKeeper::default() }).unwrap();
    let url = |account: &str, rest: &str| format!("zk://{account}@{}{rest}", server.addr());
    let store = opened(&url("me:canary", "?auth=sasl")).await;
    let key = lock("sasl");
    let hold = take(&store, &claim(&key)).await;
    assert!(store.renew(&[&hold]).await.remove(0).is_ok());
    store.release(&hold).await.unwrap();
    assert!(!format!("{store:?}").contains("canary"));
    for (account, rest, why) in [
        ("me:canary2", "?auth=sasl", "a wrong password"),
        ("you:canary", "?auth=sasl", "an unknown user"),
        ("me:canary", "", "no SASL, which is the default"),
    ] {
        let error = open(&url(account, rest)).await.expect_err(why);
        assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{why}: {error}");
        assert!(!text_of(&error).contains("canary"), "{why}: {error}");
    }
    let error = open(&format!("{}?auth=sasl", server.url())).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
}
