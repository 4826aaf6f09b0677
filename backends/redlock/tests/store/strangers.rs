//! Locks of other tools on the same nodes: redsync, node-redlock and similar ones.

use dlock::backends::redlock::Redlock;
use dlock::{Clock, ErrorKind, Key, LockKey, Wait};
use dlock_contract::{Attempt, Backend, Owner, Released};
use dlock_testkit::holds::{claim, claim_on};

use crate::cluster::{Cluster, SECOND, SLACK, attempt, confirm, take, win};
use crate::names::K;

/// As redsync writes them: 16 random bytes in base64.
const VALUE: &str = "mAkVBdpqQ3ODn0KkRKr7Rg==";

/// The keys of a foreign client on some nodes: the same value on each, if it was free there.
fn locks(cluster: &Cluster, name: &str, nodes: impl IntoIterator<Item = usize>, ms: u32) -> usize {
    let set = |node: &usize| cluster.nodes[*node].ask(&format!("SET {name} {VALUE} NX PX {ms}")).unwrap() == "OK";
    nodes.into_iter().filter(set).count()
}

/// Releases by its value, as all these tools do.
fn unlocks(cluster: &Cluster, name: &str) -> usize {
    let held = |node: &&dlock_testkit::servers::Instance| {
        let held = node.ask(&format!("GET {name}")).unwrap() == VALUE;
        held && node.ask(&format!("DEL {name}")).unwrap() == "1"
    };
    cluster.nodes.iter().filter(held).count()
}

async fn literal(cluster: &Cluster) -> Redlock {
    Redlock::connect(&format!("{}&keys=literal", cluster.url()), &Clock::system()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_majority_is_contention_that_ends_with_its_lease() {
    let cluster = Cluster::start();
    let redlock = cluster.open().await;
    assert_eq!(locks(&cluster, K, [0, 2, 3], 3000), 3);
    let Attempt::Contended(wake) = attempt(&redlock, &claim("k", SECOND * 20)).await.unwrap() else {
        panic!("granted")
    };
    assert!(wake.lease_left.is_some_and(|left| left <= SECOND * 3), "{wake:?}");
    let told = redlock.look(&claim("k", SECOND).key).await.unwrap().note().cloned().unwrap();
    assert!(told.as_str().contains("foreign client") && !told.as_str().contains("mAkVB"), "{told}");
    for node in [0, 2, 3] {
        assert_eq!(cluster.nodes[node].ask(&format!("GET {K}")).unwrap(), VALUE);
    }
    let hold = win(&redlock, &claim("k", SECOND * 20), SECOND * 3 + SLACK).await;
    assert_eq!(redlock.release(&hold).await.unwrap(), Released::Released);
    cluster.assert_empty_within(SLACK).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_lock_without_an_end_stays_a_conflict() {
    let cluster = Cluster::start();
    let redlock = literal(&cluster).await;
    for node in 0..3 {
        cluster.nodes[node].ask(&format!("SET k {VALUE}")).unwrap();
    }
    assert_eq!(*attempt(&redlock, &claim("k", SECOND * 20)).await.unwrap_err().kind(), ErrorKind::KeyConflict);
    assert_eq!(*redlock.look(&claim("k", SECOND).key).await.unwrap_err().kind(), ErrorKind::KeyConflict);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn literal_names_are_shared_in_both_directions() {
    let cluster = Cluster::start();
    let redlock = literal(&cluster).await;
    let key = LockKey::new("test", Key::text("stock:").value(&42)).unwrap();
    let claim = |ttl| claim_on(&key, ttl, |_| ());
    // Our lock keeps them out, on every node.
    let hold = take(&redlock, &claim(SECOND * 20)).await;
    assert_eq!(hold.claim.key, key);
    assert!(matches!(confirm(&redlock, &hold).await, dlock_contract::Standing::Renewed(_)));
    assert!(redlock.look(&key).await.unwrap().note().cloned().unwrap().pid().is_some());
    cluster.until_on("stock:42", 5).await;
    assert_eq!(locks(&cluster, "stock:42", 0..5, 8000), 0);
    assert!(cluster.left().is_empty(), "{:?}", cluster.left());
    assert_eq!(redlock.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(redlock.release(&hold).await.unwrap(), Released::NotOwner);
    cluster.until_on("stock:42", 0).await;
    // Their lock keeps us out, and stays unchanged.
    assert_eq!(locks(&cluster, "stock:42", 0..5, 30_000), 5);
    let refused = claim(SECOND * 20);
    assert!(matches!(attempt(&redlock, &refused).await.unwrap(), Attempt::Contended(_)));
    redlock.abandon(&refused).await.unwrap();
    assert_eq!(unlocks(&cluster, "stock:42"), 5);
    let hold = win(&redlock, &claim(SECOND * 20), SLACK).await;
    redlock.abandon(&hold.claim).await.unwrap();
    cluster.until_on("stock:42", 0).await;
    assert_eq!(locks(&cluster, "stock:42", 0..5, 8000), 5);
    // A name that can be read in two ways is refused.
    let odd = LockKey::new("test", Key::text("a b")).unwrap();
    let odd = claim_on(&odd, SECOND * 20, |_| ());
    assert!(matches!(attempt(&redlock, &odd).await.unwrap_err().kind(), ErrorKind::Unsupported { .. }));
    redlock.abandon(&odd).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_waits_for_a_foreign_holder_and_gets_the_lock_after_it() {
    let cluster = Cluster::start();
    let registry = dlock::Registry::new();
    registry.connect("store", &format!("{}&keys=literal", cluster.url())).await.unwrap();
    registry.set_default("store").unwrap();
    let fresh = Owner::fresh().unwrap().to_hex();
    let name = format!("job:{fresh}");
    assert_eq!(locks(&cluster, &name, 0..5, 60_000), 5);
    let lock = || registry.lock(Key::text("job:").value(&fresh)).ttl(SECOND * 20);
    assert_eq!(*lock().try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
    let waiting = tokio::spawn(lock().wait(Wait::UpTo(SECOND * 30)).acquire());
    // It asks in vain meanwhile. A waiter leaves nothing on the nodes by which it could be seen.
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(unlocks(&cluster, &name), 5);
    waiting.await.unwrap().unwrap().release().await.unwrap();
    cluster.until_on(&name, 0).await;
    assert_eq!(locks(&cluster, &name, 0..5, 8000), 5);
}

/// Under the same key each of them is another lock, and no node can know it.
#[tokio::test]
async fn a_probe_tells_of_the_other_forms_in_which_programs_lock_on_the_nodes() {
    let cluster = Cluster::start();
    let registry = dlock::Registry::new();
    let tells = async |text: &str| {
        let findings = registry.ready("own").await.unwrap().findings;
        assert_eq!(findings.iter().filter(|found| found.contains("another lock")).count(), text.matches("; ").count());
        for text in text.split_terminator("; ") {
            assert!(findings.iter().any(|found| found.contains(text)), "{text}: {findings:?}");
        }
    };
    registry.connect("own", &cluster.url()).await.unwrap();
    tells("").await;
    // They are noted on all nodes, and on one.
    registry.connect("literal", &format!("{}&keys=literal", cluster.url())).await.unwrap();
    tells("in this database by redlock:// with keys=literal; ").await;
    registry.connect("single", &cluster.nodes[2].url()).await.unwrap();
    tells("in this database by redlock:// with keys=literal; in this database without keys=literal; ").await;
    let findings = registry.ready("single").await.unwrap().findings.join("; ");
    assert!(findings.contains("in this database by redlock:// without keys=literal"), "{findings}");
}
